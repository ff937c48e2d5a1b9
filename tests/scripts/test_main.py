import errno
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType

import docker.errors
import pytest
import requests
import urllib3

from scripts.__main__ import COMMANDS, main
from scripts.images import ROOT

NOBODY = 65534


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Runs a command whose main is the given line, in a folder of its own."""

    def run(line, **names):
        module = ModuleType("command_of_a_test")
        exec(f"def main(settings):\n    {line}\n", {**vars(module), **names}, vars(module))
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setitem(COMMANDS, "test-command", module.__name__)
        monkeypatch.chdir(tmp_path)
        return main(["test-command"])

    return run


@pytest.fixture
def open_folder():
    """A folder of root that every user may enter; pytest's own are closed."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (
            PermissionError(errno.EACCES, "Permission denied", "/c/build/x.lock"),
            1,
            "/c/build/x.lock: Permission den",
        ),
        (
            OSError(errno.ENOSPC, "No space left on device", "/a", None, "/b"),
            1,
            "/b: No space left on device; make r",
        ),
        (
            OSError(errno.EROFS, "Read-only file system", "/a"),
            1,
            "/a: Read-only file system; it must be on a disk",
        ),
        (
            FileNotFoundError(errno.ENOENT, "No such file or directory", "git"),
            1,
            "git: No such file or directory; lo",
        ),
        (
            docker.errors.APIError("500\nServer Error"),
            69,
            "the Docker engine failed (500 Server Error); docker info",
        ),
        (docker.errors.DockerException("no"), 69, "the Docker engine failed (no); docker info says more"),
        (
            requests.exceptions.ReadTimeout("https://u:p@h"),
            69,
            "the Docker engine does not answer (https://***@h); d",
        ),
        (
            urllib3.exceptions.ProtocolError("cut off"),
            69,
            "the Docker engine does not answer (cut off); docker info",
        ),
        (ValueError("embedded null byte"), 1, "a value holds a NUL byte; look at .env and at"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_failure_of_the_machine_is_one_line_with_what_to_do(command, capsys, error, status, line):
    assert command("raise error", error=error) == status
    said = capsys.readouterr().err
    assert said.startswith(f"torch-pool: {line}")
    assert said.count("\n") == 1


@pytest.mark.parametrize("error", [ValueError("x"), KeyError("x"), AssertionError(), RuntimeError("x")])
def test_an_error_of_this_program_keeps_its_traceback(command, error):
    with pytest.raises(type(error)):
        command("raise error", error=error)


def test_a_full_disk_is_named_though_the_error_names_no_file(command, capsys, small_disk, tmp_path):
    small_disk(tmp_path / "build", "1M")
    (tmp_path / "build/filler").write_bytes(b"x" * 2**20)
    assert command("with open('build/y', 'wb', 0) as file: file.write(b'y')") == 1
    assert capsys.readouterr().err == (
        f"torch-pool: {tmp_path}/build: No space left on device; make room there and run it again\n"
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_on_roots_checkout_is_told_in_one_line(open_folder):
    for name in ("scripts", "entrypoint"):
        shutil.copytree(ROOT / name, open_folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    (open_folder / "requirements.lock").write_text("")
    (open_folder / "build").mkdir(mode=0o755)
    # Root reads the interpreter, which may stand in a closed folder; the other user only runs it.
    program = (
        "import os, sys; from scripts.bootstrap import main;"
        f"os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY}); sys.exit(main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=open_folder,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": "entrypoint"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"torch-pool: {open_folder}/build/bootstrap.lock: Permission denied; "
        "run it as the user who owns that, or give this user the right\n"
    )
