"""`make test`: brings the tools that the tests use, then runs them."""

import os
import shutil
import sys

from scripts.apt import apt_install
from scripts.settings import Settings

# A program that tells whether the Debian package is there, and the package. The tests build small libraries
# that stand in for the driver's, mount, look at processes, and make certificates.
TOOLS = {"cc": ("gcc", "libc6-dev"), "mount": ("mount",), "ps": ("procps",), "openssl": ("openssl",)}


def main(settings: Settings) -> int:
    """Becomes pytest.

    Raises:
        Refusal: a tool is missing and may not be installed here; with the command to run by hand.
    """
    packages = missing_packages()
    if packages:
        apt_install(packages, settings, "for the tests")
    environ = {name: value for name, value in os.environ.items() if not name.startswith("TORCH_POOL_CLI_")}
    os.execve(sys.executable, [sys.executable, "-m", "pytest"], environ)  # noqa: S606 -- becomes pytest


def missing_packages() -> list[str]:
    """The Debian packages of the tools that are not on PATH."""
    return [name for program, names in TOOLS.items() if not shutil.which(program) for name in names]
