import os
import shutil
import signal
import sys
from pathlib import Path

import pytest
import torch_pool
from torch_pool import launch
from torch_pool.gpu import Access, find_fault

from tests.entrypoint.image_tree import PYTHON, run

ASYNC = "backend:cudaMallocAsync"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="a new PID namespace needs root")
needs_no_gpu = pytest.mark.skipif(
    any(Path(sign).exists() for sign in launch._GPU_SIGNS), reason="with a GPU no start is plain"
)


def bare(image, env, *arguments):
    """The stub started without us, to compare with."""
    run([image.stub, *arguments], env=env)
    return image.started()


def launched(image, env, *arguments, **options):
    result = image.run(image.stub, *arguments, env=env, **options)
    assert result.returncode == 0, result.stderr
    return image.started()


# What belongs to the command


def test_the_command_starts_exactly_as_without_us_but_for_what_the_launch_records(image, env):
    without = bare(image, env, "a")
    started = launched(image, env, "a")
    assert started._replace(environ={}) == without._replace(environ={})
    assert started.environ == {
        **without.environ,
        "TORCH_POOL_LAUNCHED": f"infer PYTORCH_CUDA_ALLOC_CONF={ASYNC}",
    }


@pytest.mark.parametrize(
    "argument",
    ["", " ", "a b", "*", "$HOME", "'\"", "\\", "\n", "-c", "--", "--help", "ü", "\udcff", "a" * 100_000],
    ids=ascii,
)
def test_arguments_arrive_byte_for_byte(image, env, argument):
    assert launched(image, env, argument, "last").argv[-2:] == (os.fsencode(argument), b"last")


def test_stdout_belongs_to_the_command(image, env):
    assert image.run("echo", "X", env=env).stdout == b"X\n"


def test_stdin_reaches_the_command_unread(image, env):
    assert image.run("cat", env=env, stdin=None, input=b"given").stdout == b"given"


@pytest.mark.parametrize("status", [0, 1, 3, 125, 137, 255])
def test_the_status_is_that_of_the_command(image, env, status):
    assert image.run("sh", "-c", f"exit {status}", env=env).returncode == status


def test_a_signal_that_ends_the_command_is_seen_as_such(image, env):
    assert image.run("sh", "-c", "kill -TERM $$", env=env).returncode == -signal.SIGTERM


def test_a_broken_pipe_ends_the_command_by_its_signal(image, env):
    script = 'set -o pipefail; "$@" | head -n 1; echo ${PIPESTATUS[0]}'
    result = run(["bash", "-c", script, "x", *PYTHON, image.root / "launch.py", "yes"], env=env)
    assert result.stdout == b"y\n141\n"


def test_the_environment_gains_no_locale(image, env):
    started = launched(image, {**env, "TERM": "xterm"})
    assert set(started.environ) - {"PWD"} == {*env, "TERM", "TORCH_POOL_LAUNCHED"} - {"PWD"}


@pytest.mark.parametrize(
    "locale",
    [
        {"LC_CTYPE": "C.UTF-8"},
        {"LC_CTYPE": "C"},
        {"LC_CTYPE": ""},
        {"LANG": "C"},
        {"LANG": "C", "LC_ALL": ""},
    ],
)
def test_the_locale_is_as_the_user_set_it(image, env, locale):
    """Python itself turns the C locale into LC_CTYPE=C.UTF-8."""
    started = launched(image, {**env, **locale}).environ
    assert {
        name: value for name, value in started.items() if name in ("LANG", "LC_ALL", "LC_CTYPE")
    } == locale


def test_library_paths_are_passed_on_as_they_are(image, env):
    """Case C34: an older cuDNN on the path may be there on purpose."""
    path = "/opt/old/cudnn/lib64:/usr/local/cuda/lib64"
    assert launched(image, {**env, "LD_LIBRARY_PATH": path}).environ["LD_LIBRARY_PATH"] == path
    assert "LD_LIBRARY_PATH" not in launched(image, env).environ


def test_nothing_of_python_in_the_environment_can_change_the_launch(image, env, tmp_path):
    (tmp_path / "os.py").write_text("raise SystemExit('hijacked')")
    hostile = {"PYTHONPATH": str(tmp_path), "PYTHONSTARTUP": "/x", "PYTHONHOME": "/x", "PYTHONSAFEPATH": ""}
    assert launched(image, {**env, **hostile}, cwd=tmp_path).environ["PYTHONPATH"] == str(tmp_path)


def test_an_inherited_descriptor_stays_open(image, env):
    read, write = os.pipe()
    result = image.run("bash", "-c", f"echo through >&{write}", env=env, pass_fds=[write])
    os.close(write)
    assert (result.returncode, os.read(read, 100)) == (0, b"through\n")
    os.close(read)


def test_a_closed_stderr_does_not_keep_the_command_from_starting(image, env):
    result = run(["sh", "-c", '"$@" 2>&-', "x", *PYTHON, image.root / "launch.py", "echo", "X"], env=env)
    assert (result.returncode, result.stdout) == (0, b"X\n")


# What the launch says


@needs_no_gpu
def test_one_line_says_what_was_set_and_one_that_no_gpu_is_there(image, env):
    assert image.run("true", env=env).stderr.decode().splitlines() == [
        f"torch-pool: profile infer: PYTORCH_CUDA_ALLOC_CONF={ASYNC}",
        f"torch-pool: warning: {launch._NO_GPU}",
    ]


def test_the_plain_path_words_a_missing_gpu_as_the_policy_does():
    assert find_fault(Access(platform=None)).message == launch._NO_GPU


def test_no_command_and_no_terminal_is_a_usage_error(image, env):
    """Case C20: a container that does nothing must not look as if all were well."""
    result = image.run(env=env)
    assert result.returncode == 64
    assert result.stdout == b""
    assert result.stderr.startswith(b"torch-pool: no command was given; name one, such as: python train.py")


def test_no_command_at_a_terminal_starts_a_shell(image, env):
    command = [*map(str, PYTHON), str(image.root / "launch.py")]
    script = f"import pty; pty.spawn({command!r})"
    result = run([sys.executable, "-c", script], stdin=None, input=b"echo $((6 * 7))\nexit 5\n", env=env)
    assert b"42" in result.stdout


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_is_ours_when_no_command_is_named(image, env, flag):
    result = image.run(flag, env=env)
    assert result.returncode == 0
    assert result.stdout.startswith(b"usage: torch-pool COMMAND")
    assert result.stderr == b""


def test_version_names_the_profile(image, env):
    assert (
        image.run("--version", env=env).stdout
        == f"torch-pool {torch_pool.VERSION} (profile infer)\n".encode()
    )


def test_torch_pool_is_a_command_of_the_image(image, env):
    assert (
        image.run("torch-pool", "--version", env=env).stdout == image.torch_pool("--version", env=env).stdout
    )


@pytest.mark.parametrize(
    "hostile", ["a\nFAKE", "a\rFAKE", "\033[2J", "\x9b2J", "\u2028FAKE", "\udcff"], ids=ascii
)
def test_no_value_makes_a_line_or_steers_the_terminal(image, env, hostile):
    """A name is shown where it is set for a uid without one, and a conf wherever the user gave it."""
    result = image.run("true", env={**env, "PYTORCH_CUDA_ALLOC_CONF": f"backend:{hostile}"})
    assert result.returncode == 78
    (line,) = result.stderr.decode().splitlines()
    assert line.startswith("torch-pool: refused: ")
    assert line.isprintable()


# Commands that do not start


@pytest.fixture
def programs(tmp_path):
    """Programs that cannot be started, by name."""
    texts = {
        "crlf": b"#!/bin/sh\r\necho X\r\n",
        "no-interpreter": b"#!/no/such/python -x\n",
        "no-line": b"echo X\n",
        "other-machine": b"\x7fELF" + bytes(100),
        "not-executable": b"#!/bin/sh\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_bytes(text)
        (tmp_path / name).chmod(0o755 if name != "not-executable" else 0o644)
    (tmp_path / "link").symlink_to("/no/such/target")
    (tmp_path / "directory").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("command", "status", "message"),
    [
        ("no-such-tool", 127, "'no-such-tool': no such command on PATH; check the name"),
        ("", 127, "'': the command is empty; name a program"),
        ("/no/such/tool", 127, "'/no/such/tool': no such file in the container"),
        ("/etc/passwd/x", 127, "'/etc/passwd/x': no such file in the container"),
        ("/etc/passwd", 126, "/etc/passwd is not executable; run chmod +x"),
        ("./directory", 126, "'./directory': is a directory, not a program"),
        ("./crlf", 127, "./crlf has Windows line ends (CRLF), so '/bin/sh' is not found"),
        (
            "./no-interpreter",
            127,
            "the interpreter '/no/such/python' that ./no-interpreter names in its first line",
        ),
        ("./no-line", 126, "./no-line has no #! line and is not a program; run it as: sh ./no-line"),
        ("./other-machine", 126, "./other-machine is a program for another kind of machine"),
        ("./not-executable", 126, "./not-executable is not executable; run chmod +x"),
        ("./link", 127, "./link is a link to nothing"),
        (
            "python -c 'print(1)'",
            127,
            "the whole command came as one argument: drop the outer quotes, or use sh -c '...'",
        ),
        ("x" * 5000, 126, "cannot be started (File name too long)"),
    ],
)
def test_a_command_that_cannot_start_ends_as_in_a_shell_with_one_sentence(
    image, env, programs, *, command, status, message
):
    """Case C11 among them: one quoted string is not split, but explained."""
    result = image.run(command, env=env, cwd=programs)
    last = result.stderr.decode().splitlines()[-1]
    assert result.returncode == status
    assert result.stdout == b""
    assert last.startswith("torch-pool: ")
    assert message in last
    assert b"Traceback" not in result.stderr


def test_a_later_directory_of_the_path_is_tried_when_an_earlier_one_has_no_program(image, env, programs):
    (programs / "echo").mkdir()
    path = f"{programs}:/no/such/directory:{env['PATH']}"
    assert image.run("echo", "X", env={**env, "PATH": path}).stdout == b"X\n"


def test_an_empty_entry_of_the_path_is_the_working_directory(image, env):
    assert (
        image.run(image.stub.name, env={**env, "PATH": ":/bin:/usr/bin"}, cwd=image.stub.parent).returncode
        == 0
    )


def test_too_many_arguments_are_explained(image, env):
    with pytest.raises(OSError, match="Argument list too long"):
        image.run("true", "x" * 200_000, env=env)


# As PID 1


def in_pid_namespace(image, env, *command):
    namespace = ["unshare", "--fork", "--pid", "--mount-proc", "--kill-child"]
    return run([*namespace, *PYTHON, image.root / "launch.py", *command], env=env)


@needs_root
def test_the_command_takes_the_place_of_the_launch(image, env):
    assert in_pid_namespace(image, env, "sh", "-c", "echo $$").stdout == b"1\n"


@needs_root
def test_the_launch_leaves_no_process_behind(image, env):
    processes = in_pid_namespace(image, env, "sh", "-c", "echo /proc/[0-9]*").stdout
    assert processes == b"/proc/1\n"


@needs_root
@pytest.mark.parametrize("status", [0, 3, 143])
def test_the_status_survives_as_pid_1(image, env, status):
    assert in_pid_namespace(image, env, "sh", "-c", f"exit {status}").returncode == status


# What a start costs


@needs_no_gpu
def test_the_plain_path_imports_only_os_and_the_compiled_profile(image, env):
    show = "print(*sorted(sys.modules))"
    without = run([*PYTHON, "-c", f"import sys, os; {show}"], env=env).stdout.split()
    script = f"""
import sys, os
sys.path.insert(0, {str(image.root / "lib")!r})
import baked
from torch_pool import launch
os.execve = lambda *_: ({show}, sys.stdout.flush(), os._exit(0))
launch.main(["true"], baked)
"""
    with_us = run([*PYTHON, "-c", script], env=env).stdout.split()
    assert set(with_us) - set(without) == {b"baked", b"torch_pool", b"torch_pool.launch"}


@needs_no_gpu
def test_a_plain_start_leaves_even_the_time_of_the_home_as_it_was(image, env):
    """A file that is made and removed there would show as a change of the container's image."""
    before = Path(env["HOME"]).stat()
    assert image.run("true", env=env).returncode == 0
    assert Path(env["HOME"]).stat().st_mtime_ns == before.st_mtime_ns


def test_the_launch_works_from_files_that_nobody_can_write(image, env, tmp_path):
    """No .pyc is written at start: a read-only root is normal."""
    copy = tmp_path / "torch-pool"
    shutil.copytree(image.root, copy, ignore=shutil.ignore_patterns("__pycache__"), symlinks=True)
    before = sorted(path for path in copy.rglob("*") if "__pycache__" not in str(path))
    run([*PYTHON, copy / "launch.py", "true"], env=env)
    assert sorted(path for path in copy.rglob("*") if "__pycache__" not in str(path)) == before


def test_the_version_is_that_of_the_project():
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert f'version = "{torch_pool.VERSION}"' in text
