import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
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


class Checkout(NamedTuple):
    """A copy of this checkout, with its real Makefile and scripts; setting up `.venv` is left out."""

    root: Path

    def make(self, *arguments, **environ):
        path = f"{self.root / 'path'}:{os.environ['PATH']}"
        return subprocess.run(
            ["make", *arguments],
            cwd=self.root,
            env={"PATH": path, **environ},
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def checkout(tmp_path):
    root = tmp_path / "checkout"
    root.mkdir()
    for name in ("entrypoint", "images", "scripts"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("Makefile", "Dockerfile.j2"):
        shutil.copy(ROOT / name, root)
    for name, line in {".venv/bin/python": f'exec {sys.executable} -B "$@"', "path/python3": ""}.items():
        (root / name).parent.mkdir(parents=True)
        (root / name).write_text(f"#!/bin/sh\n{line}\n")
        (root / name).chmod(0o755)
    return Checkout(root)
