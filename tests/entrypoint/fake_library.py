"""Builds the small libnvidia-ml and libcuda that stand in for a driver: the real ctypes calls meet real C."""

import shutil
import subprocess
from pathlib import Path

SOURCES = Path(__file__).parent.parent / "data" / "fakes"


def build_library(name, directory, *defines):
    """Compile tests/data/fakes/<name>.c and return the path of the library."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler, "these tests compile a small C library: install a C compiler (cc or gcc)"
    library = directory / f"lib{name}.so"
    options = ["-shared", "-fPIC", "-Wall", "-Werror", *(f"-D{define}" for define in defines)]
    subprocess.run([compiler, *options, "-o", library, SOURCES / f"{name}.c"], check=True)
    return str(library)
