"""Loads every library that the pruning touched or could have broken: what fails here fails the build."""

import ctypes
import sys
from pathlib import Path

import numpy as np
import torch
import triton

LIBRARIES = ("torch/lib/*.so*", "triton/_C/*.so", "nvidia/*/lib/*.so*", "cusparselt/lib/*.so*")


def main() -> int:
    """Loads the libraries below the site-packages folder named on the command line."""
    site = Path(sys.argv[1])
    libraries = sorted({path for pattern in LIBRARIES for path in site.glob(pattern)})
    for library in libraries:
        load(library)
    print(
        f"torch {torch.__version__}, triton {triton.__version__}, numpy {np.__version__}: {len(libraries)} ok"
    )
    return 0


def load(library: Path) -> None:
    """Loads one library; only the driver's libcuda, which the host gives to a container, may be missing."""
    try:
        ctypes.CDLL(str(library))
    except OSError as error:
        if not str(error).startswith("libcuda.so.1:"):
            raise


if __name__ == "__main__":
    sys.exit(main())
