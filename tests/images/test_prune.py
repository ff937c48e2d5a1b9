import runpy
import subprocess
import sys

import pytest

from scripts.images import ROOT

PRUNE = ROOT / "images" / "bases" / "wheels" / "prune.py"
UNUSED = runpy.run_path(str(PRUNE))["UNUSED"]
FOLDERS = {"triton/instrumentation"}
KEPT = {
    "nvidia/cublas/lib/libcublas.so.12": "cublas",
    "nvidia/cuda_cupti/lib/libcupti.so.12": "cupti of torch",
    "nvidia/nccl/lib/libnccl.so.2": "nccl",
    "torch/lib/libtorch_cpu.so": "with symbols",
    "torch/_C.so": "with symbols",
    "torch/include/ATen/ATen.h": "header",
    "torch/testing/__init__.py": "",
    "torch/testing/_internal/tests/x.py": "imported by torch.testing",
    "triton/_C/libtriton.so": "with symbols",
    "triton/backends/nvidia/bin/ptxas": "ptxas",
    "numpy/core.py": "",
    "numpy/_core/_multiarray_umath.so": "patched: not stripped",
    "sympy/core.py": "",
}
DROPPED = {
    "torch/lib/libtorch.a": "static",
    "nvidia/cuda_runtime/lib/libcudadevrt.a": "static",
    "numpy/tests/test_x.py": "",
    "numpy/linalg/tests/test_y.py": "",
    "sympy/core/benchmarks/bench.py": "",
    "mpmath/tests/test_z.py": "",
    "networkx/algorithms/tests/test_a.py": "",
}
COPIES = {
    "triton/backends/nvidia/lib/cupti/libcupti.so": "another cupti",
    "triton/backends/nvidia/lib/cupti/libcupti.so.12": "another cupti",
    "triton/backends/nvidia/lib/cupti/libcupti.so.2024.1.0": "another cupti",
    "triton/backends/nvidia/lib/cupti/libcheckpoint.so": "without an original",
}


@pytest.fixture
def site(tmp_path):
    """A site-packages folder with the names of a torch installation."""
    unused = {f"{name}/x" if name in FOLDERS else name: "unused" for name in UNUSED}
    for name, content in {**KEPT, **DROPPED, **COPIES, **unused}.items():
        path = tmp_path / "site" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return tmp_path / "site"


@pytest.fixture(autouse=True)
def strip(program):
    """A `strip` that marks what it gets."""
    return program("strip", "open(sys.argv[-1], 'w').write('stripped')")


def prune(site):
    return subprocess.run([sys.executable, "-I", PRUNE, site], capture_output=True, text=True, check=False)


def files(site):
    found = [path for path in site.rglob("*") if path.is_file() and not path.is_symlink()]
    return {str(path.relative_to(site)): path for path in found}


def test_what_no_program_uses_is_gone_and_the_rest_is_there(site):
    done = prune(site)
    assert (done.returncode, done.stderr) == (0, "")
    assert set(files(site)) == set(KEPT)


def test_what_was_saved_is_told(site):
    big = site / "torch" / "lib" / "big.a"
    big.write_bytes(b"\0" * 3_000_000)
    assert prune(site).stdout == "pruned 3 MB of 3 MB\n"


def test_no_byte_of_an_nvidia_library_is_changed(site):
    before = {name: path.stat() for name, path in files(site / "nvidia").items()}
    prune(site)
    after = files(site / "nvidia")
    assert after
    for name, path in after.items():
        assert (path.stat(), path.read_text()) == (before[name], KEPT[f"nvidia/{name}"])


def test_only_the_open_source_libraries_lose_their_symbols(site, strip):
    prune(site)
    stripped = {name for name, path in files(site).items() if path.read_text() == "stripped"}
    assert stripped == {"torch/lib/libtorch_cpu.so", "torch/_C.so", "triton/_C/libtriton.so"}
    assert {call.arguments[0] for call in strip.calls} == {"--strip-unneeded"}


def test_the_copies_become_links_to_the_library_that_torch_loads(site, tmp_path):
    prune(site)
    folder = site / "triton/backends/nvidia/lib/cupti"
    assert {path.name for path in folder.iterdir()} == {
        "libcupti.so",
        "libcupti.so.12",
        "libcupti.so.2024.1.0",
    }
    # Relative, so that they hold where the folder is moved or mounted elsewhere.
    moved = (site).rename(tmp_path / "moved") / "triton/backends/nvidia/lib/cupti"
    for path in moved.iterdir():
        assert path.is_symlink()
        assert path.read_text() == "cupti of torch"


@pytest.mark.parametrize("name", [*UNUSED, "triton/backends/nvidia/lib/cupti"])
def test_a_name_that_is_missing_means_another_torch_and_fails(site, name):
    path = site / name
    path.rename(path.with_name("renamed"))
    done = prune(site)
    assert done.returncode != 0
    assert path.name in done.stderr


def test_a_library_that_cannot_be_stripped_fails(site, strip):
    strip.path.write_text("#!/bin/sh\nexit 1\n")
    assert prune(site).returncode != 0
