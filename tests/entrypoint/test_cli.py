import json
import subprocess

import pytest
from torch_pool.cli import COMMANDS, LATER
from torch_pool.run import split_options
from torch_pool.show import quote

from tests.entrypoint.image_tree import PYTHON, run

ASYNC, NATIVE = "backend:cudaMallocAsync", "backend:native"
CONF = "PYTORCH_CUDA_ALLOC_CONF"


def test_no_subcommand_is_a_usage_error(image, env):
    result = image.torch_pool(env=env)
    assert (result.returncode, result.stdout) == (64, b"")
    assert result.stderr.startswith(b"usage: torch-pool COMMAND")


def test_an_unknown_subcommand_is_a_usage_error_with_the_nearest_name(image, env):
    result = image.torch_pool("shwo", env=env)
    assert (result.returncode, result.stderr) == (
        64,
        b"torch-pool: 'shwo' is not a command of torch-pool; did you mean show?\n",
    )


@pytest.mark.parametrize("command", LATER)
def test_a_command_of_a_later_version_says_so_and_claims_nothing(image, env, command):
    result = image.torch_pool(command, "--json", env=env)
    said = f"torch-pool: torch-pool {command} is not in this version (0.1.0); see torch-pool --help"
    assert (result.returncode, result.stdout) == (64, b"")
    assert result.stderr.decode().startswith(said)


def test_the_help_names_every_command(image, env):
    text = image.torch_pool("--help", env=env).stdout.decode()
    assert [line.split()[0] for line in text.splitlines() if line.startswith("  ")] == list(COMMANDS)


@pytest.mark.parametrize("command", ["run", "show", "profiles", "check", "selftest"])
def test_each_command_explains_itself(image, env, command):
    result = image.torch_pool(command, "--help", env=env)
    assert result.returncode == 0
    assert result.stdout.startswith(f"usage: torch-pool {command}".encode())


@pytest.mark.parametrize("command", [["--help"], ["run", "--help"], ["profiles", "--help"]])
def test_help_fits_a_terminal(image, env, command):
    assert all(len(line) <= 80 for line in image.torch_pool(*command, env=env).stdout.decode().splitlines())


def test_output_into_a_closed_pipe_ends_without_a_word(image, env):
    script = ["sh", "-c", '"$@" profiles | true', "x", *PYTHON, image.root / "bin" / "torch-pool"]
    assert run(script, env=env).stderr == b""


# show


def test_show_names_every_value_its_source_and_the_reason(image, env):
    lines = image.torch_pool("show", env=env).stdout.decode().splitlines()
    assert lines[0] == "profile infer: Online inference with varying request shapes"
    assert lines[2].split() == ["VARIABLE", "VALUE", "SOURCE", "REASON"]
    assert lines[3].split() == [CONF, ASYNC, "baked", "profile", "allocator", "in", "base.yaml:2"]
    assert "does not work: cuda-ipc (CUDA tensors cannot be shared between processes)" in lines
    assert "for these: TORCH_POOL_ALLOCATOR=expandable, or native" in lines


def test_show_lists_no_limits_of_an_allocator_that_is_not_used(image, env):
    shown = image.torch_pool("show", env={**env, "TORCH_POOL_ALLOCATOR": "native"}).stdout
    assert b"does not work" not in shown


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {},
            "memory cap: 0.5 for each process, set when it starts CUDA; it counts only the bytes",
        ),
        (
            {"TORCH_POOL_ALLOCATOR": "native"},
            "memory cap: 0.5 for each process, set when it starts CUDA; it counts r",
        ),
        ({"TORCH_POOL_HOOK": "0"}, "memory cap: 0.5, which nothing applies, because TORCH_POOL_HOOK=0"),
    ],
)
def test_show_tells_who_applies_a_memory_cap_and_what_it_counts(image, env, settings, said):
    shown = image.torch_pool("show", env={**env, "TORCH_POOL_MEMORY": "0.5", **settings}).stdout.decode()
    assert any(line.startswith(said) for line in shown.splitlines())


def test_a_selftest_without_a_command_after_the_dashes_is_a_usage_error(image, env):
    result = image.torch_pool("selftest", "--", env=env)
    assert (result.returncode, result.stdout) == (64, b"")
    assert b"no command was given after --" in result.stderr


@pytest.mark.parametrize(
    ("redirection", "status", "said"),
    [
        (">&-", 1, ""),
        ("2>&-", 1, ""),
        (">&- 2>&- <&-", 1, ""),
        ("2>/dev/full", 1, ""),
        (">/dev/full", 70, "torch-pool: the self-test itself failed, which proves nothing: OSError"),
    ],
)
def test_a_selftest_that_cannot_tell_its_report_ends_with_70_and_a_closed_file_does_not_matter(
    image, env, redirection, status, said
):
    script = f'"$@" selftest --quick {redirection}'
    ended = run(["sh", "-c", script, "x", *PYTHON, image.root / "bin" / "torch-pool"], env=env)
    assert (ended.returncode, len(ended.stderr.splitlines())) == (status, bool(said))
    assert ended.stderr.decode().startswith(said)


def test_a_selftest_without_torch_says_so_and_ends_with_1(image, env, tmp_path):
    """These tests run where no torch is."""
    result = image.torch_pool("selftest", "--json", "--junit", tmp_path / "junit.xml", env=env)
    report = json.loads(result.stdout)
    faults = {proof["name"]: proof["found"] for proof in report["proofs"] if proof["status"] == "disproved"}
    assert (result.returncode, report["format"], report["verdict"]) == (1, 1, "disproved")
    assert faults == {"torch": "ModuleNotFoundError: No module named 'torch'"}
    assert 'failures="1" errors="0" skipped="8"' in (tmp_path / "junit.xml").read_text()


def test_settings_that_are_refused_whole_are_a_fault_of_the_selftest(image, env):
    result = image.torch_pool("selftest", env={**env, "TORCH_POOL_ALLOCATOR": "asnyc"})
    assert result.returncode == 1
    assert "did you mean async?" in result.stdout.decode()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--capabilities", "--quick"], "--capabilities cannot go with --quick"),
        (["--capabilities", "--junit", "x.xml"], "--capabilities cannot go with --junit"),
        (["--capabilities", "--", "python"], "--capabilities cannot go with a command"),
        (["--quick", "--", "python"], "--quick cannot go with a command"),
    ],
)
def test_options_that_would_be_passed_over_are_a_usage_error(image, env, options, said):
    result = image.torch_pool("selftest", *options, env=env)
    assert (result.returncode, result.stdout) == (64, b"")
    assert result.stderr.decode() == f"torch-pool: {said}; leave one of them out\n"


def test_a_junit_file_that_cannot_be_written_is_found_before_the_run(image, env, tmp_path):
    ran = tmp_path / "ran"
    command = ["--junit", "/nonexistent/x.xml", "--", "touch", ran]
    result = image.torch_pool("selftest", *command, env=env)
    assert (result.returncode, ran.exists()) == (64, False)
    assert result.stderr.startswith(b"torch-pool: --junit /nonexistent/x.xml cannot be written")


def test_show_tells_what_a_launch_would_refuse(image, env):
    result = image.torch_pool("show", env={**env, CONF: "bogus:1"})
    assert result.returncode == 0
    assert b"\nrefuse: -e PYTORCH_CUDA_ALLOC_CONF: " in result.stdout


def test_show_through_the_launch_sees_the_environment_unchanged(image, env):
    """Our own command refuses nothing: it is how one finds out why a launch refuses."""
    given = {**env, CONF: "bogus:1"}
    through = image.run("torch-pool", "show", env=given)
    assert through.stdout == image.torch_pool("show", env=given).stdout
    assert through.stderr == b""


def test_show_as_json_is_one_object(image, env):
    report = json.loads(image.torch_pool("show", "--json", "--profile", "nlp", env=env).stdout)
    assert (report["profile"], report["settings"][0]["value"]) == ("nlp", ASYNC)


def test_a_shell_that_evaluates_show_has_the_environment_of_a_launch(image, env):
    given = {**env, "TORCH_POOL_PROFILE": "shared"}
    image.run(image.stub, env=given)
    launched = image.started().environ
    exports = image.torch_pool("show", "--sh", env=given).stdout.decode()
    subprocess.run(["sh", "-c", f'{exports}\nexec "$0"', image.stub], env=given, check=True)
    assert {**image.started().environ, "PWD": ""} == {**launched, "PWD": ""}


@pytest.mark.parametrize("value", ["", "a b", "'", '"$HOME`\\', "two\nlines", "'''"])
def test_a_quoted_value_is_one_word_of_a_shell(value):
    shown = subprocess.run(
        ["sh", "-c", f"printf %s {quote(value)}"], capture_output=True, text=True, check=True
    )
    assert shown.stdout == value


def test_a_profile_that_is_not_there_is_one_line(image, env):
    result = image.torch_pool("show", "--profile", "x", env=env)
    assert (result.returncode, result.stdout) == (78, b"")
    assert result.stderr.startswith(
        b"torch-pool: TORCH_POOL_PROFILE='x' is not a profile of this image; known: base"
    )


# profiles, run


def test_profiles_are_listed_and_the_images_own_is_marked(image, env):
    lines = image.torch_pool("profiles", env=env).stdout.decode().splitlines()
    assert [line.split()[0] for line in lines] == ["base", "*", "llm-finetune", "nlp", "shared", "train"]
    assert lines[1] == f"* infer         Online inference with varying request shapes ({ASYNC})"


def test_run_starts_a_command_under_another_profile(image, env):
    image.torch_pool("run", "--profile", "shared", "--", image.stub, "--profile", "x", env=env)
    started = image.started()
    assert started.argv[-2:] == (b"--profile", b"x")
    assert started.environ["TORCH_POOL_MEMORY"] == "0.5"


@pytest.mark.parametrize(
    ("argv", "split"),
    [
        (["a", "-b"], (None, ["a", "-b"])),
        (["--", "-b"], (None, ["-b"])),
        (["--profile", "p", "a"], ("p", ["a"])),
        (["--profile=p", "a"], ("p", ["a"])),
        (["--profile", "p", "--", "--profile", "q"], ("p", ["--profile", "q"])),
    ],
)
def test_the_options_of_run_end_where_the_command_begins(argv, split):
    assert split_options(argv) == split


@pytest.mark.parametrize(
    "argv", [[], ["--"], ["--profile"], ["--profile", "p"], ["--profil", "p", "a"], ["-x", "a"]]
)
def test_run_without_a_command_or_with_an_unknown_option_is_a_usage_error(image, env, argv):
    result = image.torch_pool("run", *argv, env=env)
    assert result.returncode == 64
    assert b"usage: torch-pool run" in result.stderr
