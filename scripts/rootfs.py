"""The Debian root file system of the wheels base, as an OCI layout that any builder can take as a context."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch_pool.refusal import Refusal

from scripts.apt import apt_install, redacted
from scripts.machine import AptSource, sources_list
from scripts.settings import Settings

# Merged /usr without the package `usrmerge`, which would bring 50 MB of Perl.
HOOKS = "/usr/share/mmdebstrap/hooks/merged-usr"
EPOCH = "1735689600"  # 2025-01-01: file times that do not differ from build to build


def make_rootfs(
    folder: Path, suite: str, sources: Sequence[AptSource], dpkg_options: Path, settings: Settings
) -> Path:
    """Makes the root file system of a Debian suite with mmdebstrap and returns the OCI layout's folder.

    What is made is reproducible for one state of the mirror. The
    layout appears under its name only when it is whole.

    Raises:
        Refusal: there is no mmdebstrap or no Debian mirror, or it failed; the message holds its last words.
    """
    layout = folder / f"rootfs-{suite}"
    if (layout / "index.json").exists():
        return layout
    _require_tools(suite, sources, settings)
    print(f"making a Debian {suite} root file system from this machine's mirror", file=sys.stderr)
    partial = folder / f"rootfs-{suite}.partial-{os.getpid()}"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        _debootstrap(partial / "layer.tar", suite, sources, dpkg_options)
        write_layout(partial, partial / "layer.tar", f"mmdebstrap {suite}")
        partial.rename(layout)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return layout


def _require_tools(suite: str, sources: Sequence[AptSource], settings: Settings) -> None:
    if not sources:
        raise Refusal(
            f"this machine's apt knows no Debian mirror to make the root file system ({suite}) of the wheels "
            "base from; use a base from a registry, with BASE_REGISTRY if only a mirror can be reached"
        )
    if not shutil.which("mmdebstrap"):
        apt_install(["mmdebstrap"], settings, "to make the root file system of the wheels base")


def _debootstrap(tar: Path, suite: str, sources: Sequence[AptSource], dpkg_options: Path) -> None:
    command = [
        "mmdebstrap",
        "--quiet",
        "--variant=apt",
        f"--hook-dir={HOOKS}",
        "--include=usr-is-merged",
        '--aptopt=Acquire::Languages "none"',
        f"--dpkgopt={dpkg_options}",
        # The host's own, which mmdebstrap copies for its chroot.
        '--customize-hook=rm "$1"/etc/resolv.conf "$1"/etc/hostname',
        # A mirror may want a password, which is for this machine alone.
        '--customize-hook=sed -i "s#://[^/@ ]*@#://#" "$1"/etc/apt/sources.list',
        suite,
        str(tar),
        "-",
    ]
    run = subprocess.run(
        command,
        env={**os.environ, "SOURCE_DATE_EPOCH": EPOCH},
        input=sources_list(sources),
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode:
        last = redacted(" ".join(run.stderr.split()))[-300:]
        raise Refusal(f"mmdebstrap could not make a Debian {suite} from this machine's apt sources: {last}")


def write_layout(folder: Path, tar: Path, created_by: str) -> None:
    """Writes an OCI image layout with one uncompressed layer (OCI image-spec 1.1, image-layout.md)."""
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    layer = _move_blob(blobs, tar)
    diff_ids = [layer["digest"]]
    config = _write_blob(
        blobs,
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {},
            "rootfs": {"type": "layers", "diff_ids": diff_ids},
            "history": [{"created_by": created_by}],
        },
    )
    kind = "application/vnd.oci.image"
    manifest = _write_blob(
        blobs,
        {
            "schemaVersion": 2,
            "mediaType": f"{kind}.manifest.v1+json",
            "config": {"mediaType": f"{kind}.config.v1+json", **config},
            "layers": [{"mediaType": f"{kind}.layer.v1.tar", **layer}],
        },
    )
    entry = {"mediaType": f"{kind}.manifest.v1+json", **manifest}
    index = {"schemaVersion": 2, "mediaType": f"{kind}.index.v1+json", "manifests": [entry]}
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    (folder / "index.json").write_text(json.dumps(index))


def layout_digest(folder: Path) -> str:
    """The digest of the image in a layout."""
    digest: str = json.loads((folder / "index.json").read_text())["manifests"][0]["digest"]
    return digest


def _write_blob(blobs: Path, content: Mapping[str, Any]) -> dict[str, str | int]:
    data = json.dumps(content).encode()
    digest = hashlib.sha256(data).hexdigest()
    (blobs / digest).write_bytes(data)
    return {"digest": f"sha256:{digest}", "size": len(data)}


def _move_blob(blobs: Path, file: Path) -> dict[str, str | int]:
    with file.open("rb") as data:
        digest = hashlib.file_digest(data, "sha256").hexdigest()
    size = file.stat().st_size
    file.rename(blobs / digest)
    return {"digest": f"sha256:{digest}", "size": size}
