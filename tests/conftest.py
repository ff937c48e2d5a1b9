import json
import os
import signal
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

RECORDER = f"""#!{sys.executable} -I
import json, os, sys
with open(os.path.join(os.path.dirname(sys.argv[0]), "calls"), "a") as calls:
    print(json.dumps([sys.argv[1:], dict(os.environ)]), file=calls)
"""


class Call(NamedTuple):
    arguments: list[str]
    environ: dict[str, str]


class Program(NamedTuple):
    """A program of our own that is first on PATH, and writes down how it was called."""

    path: Path

    @property
    def calls(self):
        file = self.path.parent / "calls"
        return [Call(*json.loads(line)) for line in file.read_text().splitlines()] if file.exists() else []


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Puts a program on PATH; `then` is the Python that it runs after it has written down its call."""

    def put(name, then=""):
        path = tmp_path / "programs" / name / name
        path.parent.mkdir(parents=True)
        path.write_text(RECORDER + then)
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")
        return Program(path)

    return put


@pytest.fixture(autouse=True)
def _signals_as_python_has_them():
    """torch-pool's command line restores the defaults for its process; in a test that process is pytest."""
    yield
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_IGN)
