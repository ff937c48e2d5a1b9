"""Drops from an installed torch what no PyTorch program uses, without touching a byte of NVIDIA's libraries.

Sizes are of torch 2.6.0+cu124 (decimal MB). What was checked before a library was put on the list: no ELF
file of the installation names it as NEEDED, and libtorch holds no name of it to dlopen.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

UNUSED = (
    "nvidia/cusolver/lib/libcusolverMg.so.11",  # 82: multi-GPU solver, nothing links it
    "nvidia/cuda_cupti/lib/libnvperf_host.so",  # 28: range profiling; Kineto uses the activity API only
    "nvidia/cuda_cupti/lib/libnvperf_target.so",  # 6: the same
    "nvidia/cuda_cupti/lib/libpcsamplingutil.so",  # samples program counters, nothing links it
    "nvidia/cuda_cupti/lib/libcheckpoint.so",  # replays kernels under a profiler, nothing links it
    "nvidia/cublas/lib/libnvblas.so.12",  # a drop-in for Fortran BLAS, nothing links it
    "nvidia/cufft/lib/libcufftw.so.11",  # a drop-in for FFTW, nothing links it
    "triton/backends/nvidia/bin/nvdisasm",  # 51: prints SASS; compiling needs ptxas, which stays
    "triton/backends/nvidia/bin/cuobjdump",
    "triton/instrumentation",  # 12: a library of Triton's own tests
    "torch/bin/protoc",
    "torch/bin/protoc-3.13.0.0",
)
SAME_AS = {
    # Three copies, of another 12.4 build than torch's own: two CUPTI in one process disturb each other.
    "triton/backends/nvidia/lib/cupti": "nvidia/cuda_cupti/lib",
}
# Built from open source, so a symbol table can be made again; .dynsym, which linking needs, stays.
# Not numpy: strip breaks the page alignment of the OpenBLAS that its wheel was patched with, for 3 MB.
STRIPPED = ("torch/lib/*.so*", "torch/*.so", "triton/_C/*.so")
TEST_FOLDERS = (
    "numpy/**/tests",
    "sympy/**/tests",
    "sympy/**/benchmarks",
    "mpmath/tests",
    "networkx/**/tests",
)


def main() -> int:
    """Prunes the site-packages folder named on the command line and prints what was saved."""
    site = Path(sys.argv[1])
    before = size_bytes(site)
    for name in UNUSED:
        remove(site / name)
    for copy, original in SAME_AS.items():
        link_copies(site / copy, site / original)
    for folder in [path for pattern in TEST_FOLDERS for path in site.glob(pattern)]:
        shutil.rmtree(folder)
    for archive in list(site.rglob("*.a")):
        archive.unlink()
    for library in sorted({path for pattern in STRIPPED for path in site.glob(pattern)}):
        strip(library)
    print(f"pruned {(before - size_bytes(site)) / 1e6:.0f} MB of {before / 1e6:.0f} MB")
    return 0


def size_bytes(folder: Path) -> int:
    """The bytes in the regular files below a folder."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def remove(path: Path) -> None:
    """Removes a file or folder; one that is missing means that the list is out of date, and fails."""
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def link_copies(copies: Path, originals: Path) -> None:
    """Replaces each file of a folder by a link to the library of the same name, or drops it."""
    for path in list(copies.iterdir()):
        path.unlink()
        library = path.name.split(".so")[0]
        for original in originals.glob(f"{library}.so*"):
            path.symlink_to(os.path.relpath(original, copies))


def strip(library: Path) -> None:
    """Removes the symbol table (not the dynamic one) of an ELF file."""
    subprocess.run(["strip", "--strip-unneeded", str(library)], check=True)


if __name__ == "__main__":
    sys.exit(main())
