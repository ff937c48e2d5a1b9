import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]


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
def small_disk(tmp_path):
    """Mounts a disk of some size at a path; a container may not be allowed to."""
    mounted = []

    def mount(path, size):
        path.mkdir(exist_ok=True)
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", path], capture_output=True, check=False
        )
        if done.returncode:
            pytest.skip(f"this machine lets no test mount a disk: {done.stderr.decode().strip()}")
        mounted.append(path)

    yield mount
    for path in mounted:
        subprocess.run(["umount", path], check=True)


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
