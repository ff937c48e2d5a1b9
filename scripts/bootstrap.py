"""Makes `.venv` from requirements.lock. Standard library only: it runs on the machine's own python3.

Whatever stops it, the next run starts the folder afresh: the stamp that says "complete" is written last.
"""

import sys

if sys.version_info[:2] < (3, 11):  # noqa: UP036 - the machine's python3 may be older; then this says so
    sys.exit(
        f"torch-pool: Python 3.11 or newer is needed, and {sys.executable} is older; put one first on PATH"
    )

import hashlib
import importlib.util
import os
import re
import subprocess
import sysconfig
import tempfile
from collections.abc import Mapping
from importlib.metadata import distributions
from pathlib import Path

from torch_pool.refusal import UNAVAILABLE, Refusal

from scripts.apt import apt_install, redacted
from scripts.failure import explain, full_disk
from scripts.lock import exclusive
from scripts.settings import Settings, load_settings

VENV = ("-m", "venv", "--clear", ".venv")
PIP = (
    *(".venv/bin/python", "-m", "pip", "install", "--require-hashes", "-r", "requirements.lock"),
    *("--no-input", "--no-user", "--disable-pip-version-check", "--progress-bar=off"),
)
# The rest of PIP_* says where or what to install, and would put it elsewhere or nowhere.
PIP_NAMES = (
    *("PIP_CONFIG_FILE", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX", "PIP_FIND_LINKS"),
    *("PIP_TRUSTED_HOST", "PIP_CERT", "PIP_CLIENT_CERT", "PIP_PROXY", "PIP_KEYRING_PROVIDER"),
    *("PIP_TIMEOUT", "PIP_DEFAULT_TIMEOUT", "PIP_RETRIES", "PIP_RESUME_RETRIES"),
)
# What `python -m venv` writes: with less it fails, and hides the reason that ensurepip gives.
VENV_BYTES = 30_000_000
PIP_FAILURES = (
    (
        "DO NOT MATCH THE HASHES",
        "a download is not the file that requirements.lock names; nothing of it is used",
    ),
    (
        "CERTIFICATE_VERIFY_FAILED",
        "the index's certificate is not trusted; name your CA file in pip's cert option",
    ),
    ("No space left on device", "the disk is full"),
    ("Retrying", "the package index cannot be reached; look at the network, the proxy, and pip config list"),
    ("No matching distribution found", "the package index lacks a version that requirements.lock names"),
)


def main() -> int:
    """Make the virtual environment where it is missing or of another lock."""
    try:
        make_ready(Path.cwd(), load_settings(os.environ, Path.cwd()))
    except Refusal as refusal:
        print(f"torch-pool: {refusal}", file=sys.stderr)
        return refusal.status
    except KeyboardInterrupt:
        print("torch-pool: interrupted; the same command goes on", file=sys.stderr)
        return 130
    except Exception as error:
        failure = explain(error)
        if not failure:
            raise
        print(f"torch-pool: {failure[0]}", file=sys.stderr)
        return failure[1]
    return 0


def make_ready(root: Path, settings: Settings) -> None:
    """Leave `root`/.venv with exactly what requirements.lock says.

    Raises:
        Refusal: This Python cannot make one, or pip fails.
    """
    wanted = hashlib.sha256((root / "requirements.lock").read_bytes()).hexdigest()
    if _is_ready(root, wanted):
        return
    with exclusive(root / "build/bootstrap.lock", "waiting for another run that sets up .venv") as lock:
        if _is_ready(root, wanted):
            return
        print("torch-pool: setting up .venv from requirements.lock; a minute or so", file=sys.stderr)
        _ensure_ensurepip(settings)
        _make_venv(root, settings, lock)
        _stamp(root).write_text(wanted)


def _stamp(root: Path) -> Path:
    return root / ".venv/requirements.sha256"


def _is_ready(root: Path, wanted: str) -> bool:
    stamp = _stamp(root)
    # The link breaks when the Python that it points to is removed.
    return stamp.is_file() and stamp.read_text() == wanted and os.access(root / ".venv/bin/python", os.X_OK)


def _make_venv(root: Path, settings: Settings, lock: int) -> None:
    log = root / "build/logs/bootstrap.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    # First, so that a removal that is cut short cannot look complete.
    _stamp(root).unlink(missing_ok=True)
    with log.open("w") as out:
        for step in ((sys.executable, *VENV), PIP):
            # With the lock: where only we are killed, the next run waits for what goes on.
            done = subprocess.run(
                step,
                cwd=root,
                env=pip_environment(settings, os.environ),
                stdout=out,
                stderr=subprocess.STDOUT,
                pass_fds=(lock,),
                check=False,
            )
            if done.returncode:
                reason = pip_reason(log.read_text(errors="replace"), _full_disk(root, log))
                raise Refusal(f".venv cannot be made: {reason} (all of it is in {log})", UNAVAILABLE)
    _check_installed(root)


def pip_environment(settings: Settings, environ: Mapping[str, str]) -> dict[str, str]:
    """Return `environ` without what would make pip install something else or elsewhere."""
    kept = {
        name: value for name, value in environ.items() if not name.startswith("PIP_") or name in PIP_NAMES
    }
    return kept | ({"PIP_CERT": settings.ca_bundle.value} if settings.ca_bundle.value else {})


def _full_disk(root: Path, log: Path) -> str:
    full = full_disk((root / ".venv", root, log.parent, Path(tempfile.gettempdir())), VENV_BYTES)
    return f"the disk of {full} is full; make room there" if full else ""


def _check_installed(root: Path) -> None:
    """Pip's configuration files can send packages elsewhere too, by target, prefix or user."""
    folder = sysconfig.get_path("purelib", "venv", {"base": str(root / ".venv")})
    missing = missing_packages((root / "requirements.lock").read_text(), Path(folder))
    if missing:
        end = "look for target, prefix, user, no-deps and dry-run in pip config list"
        raise Refusal(f".venv cannot be made: pip did not put {missing[0]} into it; {end}", UNAVAILABLE)


def missing_packages(lock: str, folder: Path) -> list[str]:
    """Return what of a lock file's text is not installed in `folder`, as name==version."""
    found = {
        (_normal(package.metadata["Name"]), package.version) for package in distributions(path=[str(folder)])
    }
    wanted = re.findall(r"(?m)^([A-Za-z0-9_.-]+)==([^\s;]+)", lock)
    return [f"{name}=={version}" for name, version in wanted if (_normal(name), version) not in found]


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pip_reason(output: str, otherwise: str = "") -> str:
    """Return why pip failed, in one sentence; the first row that fits is the cause of the later ones.

    Where none fits, `otherwise` is the reason, else pip's last error.
    """
    known = next((reason for sign, reason in PIP_FAILURES if sign in output), None)
    errors = re.findall(r"^(?:ERROR|Error): +(.+)$", output, re.MULTILINE) or output.strip().splitlines()
    return known or otherwise or redacted(errors[-1] if errors else "no output")


def _ensure_ensurepip(settings: Settings) -> None:
    """Debian keeps the part of Python that makes virtual environments in a package of its own."""
    if importlib.util.find_spec("ensurepip"):
        return
    if sys.base_prefix != "/usr" or not Path("/etc/debian_version").exists():
        complete = "put a complete Python 3.11 or newer first on PATH"
        raise Refusal(f"{sys.executable} lacks ensurepip, which .venv needs; {complete}", UNAVAILABLE)
    apt_install([f"python3.{sys.version_info.minor}-venv"], settings, "to make .venv")


if __name__ == "__main__":
    raise SystemExit(main())
