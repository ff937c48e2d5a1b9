"""The labels that change from build to build, and the commit that they come from."""

import os
import subprocess
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from torch_pool.refusal import Refusal

from scripts.base_image import ReadyBase
from scripts.bases import REGISTRY
from scripts.images import ROOT

OCI = "org.opencontainers.image."
BY_TEMPLATE = (f"{OCI}title", f"{OCI}description", f"{OCI}ref.name")
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
    """The commit of a checkout; outside one (an archive, also inside another checkout) zeros, dirty.

    Raises:
        Refusal: there is a repository and git does not read it, as where another user owns it.
    """
    top = _git(root, "rev-parse", "--show-toplevel")
    log = _git(root, "log", "-1", "--format=%H %ct")
    if log is None or top is None or Path(top.rstrip("\n")).resolve() != root.resolve():
        return Commit("0" * 40, 0, dirty=True)
    identity, seconds = log.split()
    # A status that git cannot give counts as dirty.
    return Commit(identity, int(seconds), dirty=_git(root, "status", "--porcelain") != "")


def read_home(root: Path = ROOT) -> str:
    """Where the source is published: git's remote `origin`, if it is a plain web address; else empty."""
    url = (_git(root, "remote", "get-url", "origin") or "").strip().removesuffix(".git")
    return url if url.startswith("https://") and "@" not in url else ""


def _git(root: Path, *arguments: str) -> str | None:
    """What git prints; None where there is no git, no repository or no commit.

    Without GIT_* variables, which a hook sets for its own repository, and in English.
    """
    command = ["git", "-C", str(root), *arguments]
    environ = {
        name: value for name, value in os.environ.items() if not name.startswith("GIT_") or "TEST" in name
    }
    try:
        run = subprocess.run(
            command, capture_output=True, text=True, env={**environ, "LC_ALL": "C"}, check=False
        )
    except FileNotFoundError:
        return None
    if "dubious ownership" in run.stderr:
        raise Refusal(
            f"git does not read {root}, which another user owns, so the labels could not name its commit; "
            f"run: git config --global --add safe.directory {root}"
        )
    return run.stdout if run.returncode == 0 else None


def build_labels(commit: Commit, base: ReadyBase, home: str, inherited: Collection[str]) -> dict[str, str]:
    """What only the build knows.

    `home` is where the source is published; base.name and base.digest are absent for a base that is not. An
    image label that is `inherited` from the base and not ours is emptied: it would speak of another image.
    """
    labels = {
        f"{OCI}created": commit.created,
        f"{OCI}revision": commit.id,
        f"{OCI}version": commit.version,
        f"{OCI}vendor": VENDOR,
        f"{OCI}authors": VENDOR,
        f"{OCI}licenses": LICENSES,
        "io.torch-pool.torch": base.facts.torch,
        "io.torch-pool.cuda": base.facts.cuda,
        "io.torch-pool.python": base.facts.python,
    }
    if home:
        labels |= {f"{OCI}{name}": home for name in ("documentation", "source", "url")}
    if base.base.kind == REGISTRY and base.base.digest:
        labels |= {f"{OCI}base.name": base.base.reference, f"{OCI}base.digest": base.base.digest}
    ours = {*labels, *BY_TEMPLATE}
    foreign = [name for name in inherited if name.startswith(OCI) and name not in ours]
    return {**dict.fromkeys(foreign, ""), **labels}
