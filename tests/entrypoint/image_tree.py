"""The files of an image, laid out as the build does, and a program that shows how it was started."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import yaml
from torch_pool.profile import compile_profile, load_profile

ENTRYPOINT = Path(__file__).parents[2] / "entrypoint"
PYTHON = [sys.executable, "-I", "-S"]

_STUB = """#!/bin/sh
here=${0%/*}
cat /proc/$$/cmdline > "$here/argv"
cat /proc/$$/environ > "$here/environ"
while read -r name value; do
    case $name in Sig[PBIC]*) echo "$name $value" ;; esac
done < /proc/$$/status > "$here/signals"
ls /proc/$$/fd > "$here/descriptors"
pwd > "$here/directory"
"""


class Started(NamedTuple):
    """How a program found itself: all that a launch could have changed."""

    argv: tuple[bytes, ...]
    environ: dict[str, str]
    signals: str
    descriptors: str
    directory: str


class Image(NamedTuple):
    root: Path
    stub: Path

    def run(self, *command, **options):
        """Run a command as `docker run IMAGE COMMAND` does, in an environment that the test gives whole."""
        return run([*PYTHON, self.root / "launch.py", *command], **options)

    def torch_pool(self, *command, **options):
        """Run `torch-pool COMMAND` as `docker exec` does."""
        return run([*PYTHON, self.root / "bin" / "torch-pool", *command], **options)

    def started(self):
        """What the stub saw when it was last started."""
        read = {file: (self.stub.parent / file).read_bytes() for file in ("argv", "environ")}
        texts = [(self.stub.parent / file).read_text() for file in ("signals", "descriptors", "directory")]
        pairs = [os.fsdecode(pair).partition("=") for pair in read["environ"].split(b"\0") if pair]
        argv = tuple(read["argv"].split(b"\0")[:-1])
        return Started(argv, {name: value for name, _, value in pairs}, *texts)


def run(command, *, env, **options):
    usual = {"capture_output": True, "stdin": subprocess.DEVNULL, "timeout": 60}
    return subprocess.run(command, env=env, check=False, **usual | options)


def lay_out(root, profile="infer"):
    """The tree of an image with a shipped profile, or with the one in a YAML file."""
    profiles = ENTRYPOINT / "profiles"
    path = Path(profile) if "/" in str(profile) else profiles / f"{profile}.yaml"
    shutil.copytree(ENTRYPOINT, root, ignore=shutil.ignore_patterns("__pycache__", "torch_pool", "profiles"))
    shutil.copytree(ENTRYPOINT / "torch_pool", root / "lib" / "torch_pool")
    (root / "lib" / "baked.py").write_text(compile_profile(load_profile(str(path), str(profiles))))
    compiled = root / "lib" / "torch_pool" / "compiled"
    compiled.mkdir()
    for shipped in profiles.glob("*.yaml"):
        text = compile_profile(load_profile(str(shipped), str(profiles)))
        (compiled / f"{shipped.stem}.py").write_text(text)
    (root / "vendor").mkdir()
    (root / "vendor" / "yaml").symlink_to(Path(yaml.__file__).parent)
    stub = root / "stub" / "program"
    stub.parent.mkdir()
    stub.write_text(_STUB)
    stub.chmod(0o755)
    return Image(root, stub)
