import pytest
from torch_pool.hooks import check_hooks, list_hooks, run_hooks
from torch_pool.refusal import CONFIG, Refusal


def hook(directory, name, text, mode=0o755):
    (directory / name).write_text(f"#!/bin/sh\n{text}\n")
    (directory / name).chmod(mode)


def test_hooks_run_in_the_order_of_their_names_with_the_commands_environment(tmp_path):
    hook(tmp_path, "20-second", f'echo "second $A" >> {tmp_path}/../log')
    hook(tmp_path, "10-first", f'echo "first $A" >> {tmp_path}/../log')
    run_hooks({"A": "value"}, str(tmp_path))
    assert (tmp_path.parent / "log").read_text() == "first value\nsecond value\n"


def test_what_a_hook_prints_goes_to_stderr_because_stdout_is_the_commands(tmp_path, capfd):
    hook(tmp_path, "10-loud", "echo out; echo err >&2")
    run_hooks({}, str(tmp_path))
    assert capfd.readouterr() == ("", "out\nerr\n")


def test_a_hook_cannot_wait_for_stdin(tmp_path):
    hook(tmp_path, "10-reads", "/bin/cat; exit 0")
    run_hooks({}, str(tmp_path))


@pytest.mark.parametrize(
    ("text", "ending"),
    [
        ("exit 3", "failed with status 3;"),
        ("kill -9 $$", "was ended by signal 9 (SIGKILL);"),
        ("kill -40 $$", "was ended by signal 40;"),
    ],
)
def test_a_hook_that_fails_stops_the_start_and_those_after_it(tmp_path, text, ending):
    hook(tmp_path, "10-fails", text)
    hook(tmp_path, "20-never", f"touch {tmp_path}/ran")
    with pytest.raises(Refusal) as caught:
        run_hooks({}, str(tmp_path))
    assert caught.value.status == CONFIG
    assert str(caught.value).startswith(f"hook {tmp_path}/10-fails {ending}")
    assert not (tmp_path / "ran").exists()


def test_a_hook_that_cannot_start_stops_the_start(tmp_path):
    (tmp_path / "10-x").write_text("#!/no/such/interpreter\n")
    (tmp_path / "10-x").chmod(0o755)
    with pytest.raises(Refusal, match="cannot be started"):
        run_hooks({}, str(tmp_path))


def test_a_file_that_is_not_executable_is_skipped_with_a_warning(tmp_path):
    hook(tmp_path, "10-plain", "exit 1", mode=0o644)
    run_hooks({}, str(tmp_path))
    assert [finding.message for finding in check_hooks(str(tmp_path))] == [
        f"hook {tmp_path}/10-plain is not executable and was skipped: chmod +x it"
    ]


def test_directories_and_hidden_files_are_no_hooks(tmp_path):
    (tmp_path / "sub").mkdir()
    hook(tmp_path, ".swp", "exit 1")
    assert list_hooks(str(tmp_path)) == []


def test_a_link_to_nothing_stops_the_start(tmp_path):
    (tmp_path / "10-gone").symlink_to("/no/such/hook")
    with pytest.raises(Refusal, match=r"10-gone cannot be read \(No such file or directory\)"):
        list_hooks(str(tmp_path))


@pytest.mark.parametrize("kind", ["file", "dangling"])
def test_what_should_be_the_directory_and_is_none_stops_the_start(tmp_path, kind):
    place = tmp_path / "launch.d"
    place.touch() if kind == "file" else place.symlink_to("/no/such/directory")
    with pytest.raises(Refusal, match=r"launch\.d cannot be read") as caught:
        list_hooks(str(place))
    assert caught.value.status == CONFIG


def test_no_directory_is_no_hooks():
    assert list_hooks("/no/such/directory") == []
