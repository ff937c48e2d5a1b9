"""The labels that change from build to build, and the commit that they come from."""

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from torch_pool.refusal import Refusal

from scripts.base_image import ReadyBase
from scripts.bases import REGISTRY
from scripts.images import ROOT

VENDOR = "torch-pool"
# torch and Python; CUDA, cuDNN and the other NVIDIA libraries come under NVIDIA's own licence.
LICENSES = "BSD-3-Clause AND PSF-2.0 AND LicenseRef-NVIDIA-CUDA-EULA"


@dataclass(frozen=True)
class Commit:
    """The commit of the checkout: id, time in seconds since 1970, whether files differ from it."""

    id: str
    time: int
    dirty: bool

    @property
    def created(self) -> str:
        """RFC 3339, as the image annotations want it."""
        return datetime.fromtimestamp(self.time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    @property
    def version(self) -> str:
        """Date and id, as in an immutable tag; a build of changed files says so."""
        date = datetime.fromtimestamp(self.time, UTC).strftime("%Y%m%d")
        return f"{date}-{self.id[:12]}" + ("-dirty" if self.dirty else "")


def read_commit(root: Path = ROOT) -> Commit:
    """The commit of a checkout; outside one (an archive) a commit of zeros, dirty.

    Raises:
        Refusal: there is a repository and git does not read it, as where another user owns it.
    """
    log = _git(root, "log", "-1", "--format=%H %ct")
    if log is None:
        return Commit("0" * 40, 0, dirty=True)
    identity, seconds = log.split()
    return Commit(identity, int(seconds), dirty=bool(_git(root, "status", "--porcelain")))


def _git(root: Path, *arguments: str) -> str | None:
    """What git prints; None where there is no git, no repository or no commit."""
    command = ["git", "-C", str(root), *arguments]
    try:
        run = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    if "dubious ownership" in run.stderr:
        raise Refusal(
            f"git does not read {root}, which another user owns, so the labels could not name its commit; "
            f"run: git config --global --add safe.directory {root}"
        )
    return run.stdout if run.returncode == 0 else None


def build_labels(commit: Commit, base: ReadyBase) -> Mapping[str, str]:
    """What only the build knows. base.name and base.digest are absent for a base that is not published."""
    labels = {
        "org.opencontainers.image.created": commit.created,
        "org.opencontainers.image.revision": commit.id,
        "org.opencontainers.image.version": commit.version,
        "org.opencontainers.image.vendor": VENDOR,
        "org.opencontainers.image.authors": VENDOR,
        "org.opencontainers.image.licenses": LICENSES,
        "io.torch-pool.torch": base.facts.torch,
        "io.torch-pool.cuda": base.facts.cuda,
        "io.torch-pool.python": base.facts.python,
    }
    if base.base.kind == REGISTRY and base.base.digest:
        labels |= {
            "org.opencontainers.image.base.name": base.base.reference,
            "org.opencontainers.image.base.digest": base.base.digest,
        }
    return labels
