"""GPU tests: a machine with an NVIDIA GPU and any CUDA torch, pytest, and nothing else; no Docker.

Each test runs the real `torch-pool` as a container would, from a tree of files like an image's. With
RESULTS=DIRECTORY what was found is written there as JSON.
"""

import datetime as dt
import fcntl
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from torch_pool import nvml
from torch_pool.profile import Profile, compile_profile

ENTRYPOINT = Path(__file__).parents[2] / "entrypoint"
CONFS = {
    "async": "backend:cudaMallocAsync",
    "native": "backend:native",
    "expandable": "expandable_segments:True",
}
_ASK_TORCH = (
    "import torch; print(torch.__version__, torch.cuda.is_available(), torch.cuda.get_device_name(0))"
)
_HOOK = f"import site; site.addsitedir({str(ENTRYPOINT / 'site')!r})\n"


class Ended(NamedTuple):
    status: int
    stdout: str
    stderr: str

    @property
    def report(self) -> Any:
        return json.loads(self.stdout)

    @property
    def disproved(self) -> set[str]:
        return {proof["name"] for proof in self.report["proofs"] if proof["status"] == "disproved"}


@pytest.fixture(scope="session")
def torch_version() -> str:
    """The version of the torch of this Python, which must see a GPU."""
    command = [sys.executable, "-c", _ASK_TORCH]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1]
        pytest.skip(f"needs an NVIDIA GPU and a torch that sees it: {last}")
    return done.stdout.split()[0]


@pytest.fixture(scope="session")
def results(torch_version: str) -> Iterator[dict[str, Any]]:
    """What is to be kept of this run."""
    inventory = nvml.query(10)
    assert isinstance(inventory, nvml.Inventory), inventory
    found: dict[str, Any] = {
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "driver": inventory.driver,
        "gpus": [gpu.name for gpu in inventory.gpus],
        "torch": torch_version,
        "python": platform.python_version(),
    }
    yield found
    if "RESULTS" in os.environ:
        add_results(Path(os.environ["RESULTS"]) / f"torch-{torch_version.partition('+')[0]}.json", found)


def add_results(path: Path, found: dict[str, Any]) -> None:
    """Put the results into the file. Several workers of one run may do so."""
    with path.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        before = json.loads(file.read() or "{}")
        found = json.loads(without_names(json.dumps(found)))
        whole = {**before, **{name: merge(before.get(name), value) for name, value in found.items()}}
        file.truncate(0)
        file.write(json.dumps(whole, indent=1, ensure_ascii=False) + "\n")


def without_names(text: str) -> str:
    """Results are to be published: without the UUIDs of GPUs and the folders of a machine."""
    return re.sub(
        r"in /[^ \"]+/torch/__init__\.py", "in site-packages", re.sub(r"\b[0-9a-f]{32}\b", "UUID", text)
    )


def merge(before: Any, value: Any) -> Any:
    return {**before, **value} if isinstance(before, dict) and isinstance(value, dict) else value


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of an image whose profile is async."""
    root = tmp_path_factory.mktemp("image")
    shutil.copytree(ENTRYPOINT / "torch_pool", root / "lib" / "torch_pool")
    shutil.copytree(ENTRYPOINT / "bin", root / "bin")
    profile = Profile("gpu-test", "", {"backend": "cudaMallocAsync"}, {}, {})
    (root / "lib" / "baked.py").write_text(compile_profile(profile))
    return root


Run = Callable[..., Ended]


@pytest.fixture
def torch_pool(torch_version: str, tree: Path, tmp_path: Path) -> Run:
    """Runs `torch-pool`; `at_start` is Python that runs at the start of every interpreter, as a .pth does."""

    def run(*arguments: object, at_start: str = _HOOK, **environ: str) -> Ended:
        (tmp_path / "sitecustomize.py").write_text(at_start)
        search = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
        usual = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTORCH", "TORCH_"))
        }
        environ = {
            **usual,
            "PYTORCH_CUDA_ALLOC_CONF": CONFS["async"],
            "PYTHONPATH": os.pathsep.join(search),
            **environ,
        }
        command = [sys.executable, tree / "bin" / "torch-pool", *map(str, arguments)]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=500)
        return Ended(done.returncode, done.stdout, done.stderr)

    return run
