import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import pytest
from torch_pool.refusal import Refusal

from scripts.buildx import build
from scripts.images import ROOT

# What buildx would do, as far as a caller sees it: its progress goes to stderr, its status tells the rest.
PROGRESS = """
sys.stderr.write("#1 one\\n")
sys.stderr.flush()
sys.stdout.write("sha256:of no use\\n")
os.write(2, b"#2 caf\\xc3\\xa9 \\xff\\n")
"""
TERMINAL = """
size = os.get_terminal_size(2)
os.write(2, f"\\x1b[1A{size.columns}x{size.lines} {os.isatty(2)}\\n".encode())
"""


def run(arguments, tmp_path):
    log = tmp_path / "logs" / "image.log"
    build("torch-pool:infer", arguments, os.environ, log)
    return log


def test_without_a_terminal_the_progress_is_plain_and_also_in_the_log(program, tmp_path, capfdbinary):
    docker = program("docker", PROGRESS)
    log = run(["--file=a b", "."], tmp_path)
    out, err = capfdbinary.readouterr()
    assert (out, err) == (b"", b"#1 one\n#2 caf\xc3\xa9 \xff\n")
    assert log.read_bytes() == err
    assert [call.arguments for call in docker.calls] == [
        ["buildx", "build", "--progress", "plain", "--file=a b", "."]
    ]


def test_a_new_build_begins_a_new_log(program, tmp_path):
    program("docker", PROGRESS)
    run(["."], tmp_path)
    assert run(["."], tmp_path).read_bytes().count(b"#1 one") == 1


@pytest.mark.parametrize("status", [1, 2, 137])
def test_a_failure_is_one_sentence_with_its_cause_and_the_log(program, tmp_path, status):
    program("docker", f"os.write(2, b'#9 0.2 x: No space left on device\\n'); sys.exit({status})")
    with pytest.raises(Refusal) as refusal:
        run(["."], tmp_path)
    assert refusal.value.status == 1
    assert re.fullmatch(
        r"building torch-pool:infer failed, nothing was tagged: the disk is full; .*"
        rf"\(x: No space left on device\); the whole output is in {tmp_path}/logs/image\.log",
        str(refusal.value),
    )


def test_a_killed_build_fails(program, tmp_path):
    program("docker", "os.kill(os.getpid(), 9)")
    with pytest.raises(Refusal, match="failed, nothing was tagged: it said nothing; "):
        run(["."], tmp_path)


def in_terminal(tmp_path, *, columns):
    """Builds in a process whose stderr is a terminal; returns its status, and what the terminal got."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 33, columns, 0, 0))
    program = "import os; from pathlib import Path; from scripts.buildx import build;"
    program += "build('infer', ['.'], os.environ, Path('image.log'))"
    process = subprocess.Popen(
        [sys.executable, "-B", "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/entrypoint"},
        stderr=theirs,
    )
    os.close(theirs)
    seen = b""
    try:
        while data := os.read(ours, 4096):
            seen += data
    except OSError:
        pass  # Linux says EIO where the other side is gone.
    os.close(ours)
    return process.wait(), seen


def test_in_a_terminal_buildx_draws_in_one_of_the_same_size(program, tmp_path):
    docker = program("docker", TERMINAL)
    status, seen = in_terminal(tmp_path, columns=123)
    assert status == 0
    assert b"\x1b[1A123x33 True" in seen
    assert b"\x1b[1A123x33 True" in (tmp_path / "image.log").read_bytes()
    assert docker.calls[0].arguments[:4] == ["buildx", "build", "--progress", "tty"]


def test_in_a_terminal_a_failure_has_its_cause_without_colours(program, tmp_path):
    program("docker", "os.write(2, b'\\x1b[31m0.1 dns error\\x1b[0m\\n'); sys.exit(3)")
    status, seen = in_terminal(tmp_path, columns=80)
    assert status == 1
    assert b"cannot be reached; check the network and the proxy of this machine (dns error);" in seen
