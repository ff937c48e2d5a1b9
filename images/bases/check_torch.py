"""Checks without importing it that one torch is installed and that it is the expected one.

Usage: check_torch.py [TORCH CUDA], such as 2.6.0+cu124 12.4. Without arguments: what the first check found.
"""

import runpy
import sys
import sysconfig
from pathlib import Path

RECORD = Path("/opt/torch-pool/torch.txt")


def main() -> int:
    """Fails with one line when torch is not the expected one, else records it for the next check."""
    site = Path(sysconfig.get_path("platlib"))
    copies = [path.name for path in site.glob("torch-*.dist-info")]
    if len(copies) != 1:
        print(f"expected one installed torch in {site}, found", len(copies), *copies, file=sys.stderr)
        return 1
    version = runpy.run_path(str(site / "torch" / "version.py"))
    found = f"torch {version['__version__']} for CUDA {version['cuda']}"
    if sys.argv[1:]:
        expected = "torch {} for CUDA {}".format(*sys.argv[1:3])
    else:
        expected = RECORD.read_text().strip() if RECORD.exists() else found
    if found != expected:
        print(f"expected {expected}, found {found}", file=sys.stderr)
        return 1
    RECORD.write_text(found + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
