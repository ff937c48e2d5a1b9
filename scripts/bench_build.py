"""`make bench-build`: how long builds take here, as a table with the goals beside what was measured.

Times depend on the machine and its network, so this is never a test. It builds from a copy of the checkout,
under names of its own; the wheels base is made anew, so the next build of each image makes that anew too.
"""

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from torch_pool.refusal import Refusal

from scripts.context import BUILD
from scripts.engine import docker_client, ensure_engine
from scripts.images import ROOT
from scripts.labels import read_commit
from scripts.layers import own_layers, read_layers, stored_bytes, total_bytes
from scripts.settings import Settings

REGISTRY = "bench.invalid"
REPOSITORY = f"{REGISTRY}/torch-pool"
BASE = "torch-pool-base:wheels"
STEPS = (
    "copy the tracked files into a folder of their own",
    "make .venv there",
    f"build {REPOSITORY}:infer upon a wheels base that is made anew",
    f"build {REPOSITORY}:train",
    f"build {REPOSITORY}:infer once unchanged and once with an edited profile",
    f"remove the images of {REPOSITORY} and the folder",
    "write build/bench-build.json",
)


@dataclass(frozen=True)
class Row:
    """One measurement; `goal` and `found` are in `unit`."""

    what: str
    goal: float
    found: float
    unit: str


def main(settings: Settings) -> int:
    """Measures, prints the table, and keeps it as build/bench-build.json."""
    if settings.dry_run.value == "1":
        print("".join(f"would {step}\n" for step in STEPS), end="", file=sys.stderr)
        return 0
    ensure_engine(settings)
    try:
        with tempfile.TemporaryDirectory() as folder:
            rows = measure(copy_checkout(Path(folder) / "checkout"))
    finally:
        remove_images()
    report = {
        "machine": describe_machine(),
        "commit": read_commit().version,
        "rows": [asdict(row) for row in rows],
    }
    BUILD.mkdir(exist_ok=True)
    (BUILD / "bench-build.json").write_text(json.dumps(report, indent=2) + "\n")
    print(format_table(rows))
    return 0


def measure(checkout: Path) -> list[Row]:
    """What a team meets, in its order: first image, another, nothing changed, an edited profile."""
    client = docker_client()
    environment = bootstrap_seconds(checkout)
    first = build_seconds(checkout, "infer", NO_CACHE="1")
    other = build_seconds(checkout, "train")
    unchanged = build_seconds(checkout, "infer")
    before = read_layers(client, f"{REPOSITORY}:infer")
    edit_profile(checkout)
    edited = build_seconds(checkout, "infer")
    new = own_layers(read_layers(client, f"{REPOSITORY}:infer"), before)
    base_bytes = stored_bytes(client, BASE)
    added_bytes = stored_bytes(client, f"{REPOSITORY}:infer") - base_bytes
    return [
        Row("Python environment, base and first image, only downloads cached", 480, environment + first, "s"),
        Row("another profile", 15, other, "s"),
        Row("nothing changed", 3, unchanged, "s"),
        Row("an edited profile", 5, edited, "s"),
        Row("new layers of an edited profile", 64, total_bytes(new) / 1024, "KiB"),
        Row("added to the base by an image without packages", 1, added_bytes / 2**20, "MiB"),
        Row("wheels base with compiler and tini, unpacked", 5, base_bytes / 1e9, "GB"),
    ]


def copy_checkout(folder: Path) -> Path:
    """The tracked files in a folder of their own, so that nothing here is edited."""
    names = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    for name in filter(None, names.split("\0")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    return folder


def bootstrap_seconds(checkout: Path) -> float:
    return seconds(["make", "-s", "venv"], checkout, {})


def build_seconds(checkout: Path, profile: str, **settings: str) -> float:
    return seconds(["make", "-s", "build", f"PROFILE={profile}"], checkout, settings)


def seconds(command: list[str], folder: Path, settings: dict[str, str]) -> float:
    """How long a command takes.

    Raises:
        Refusal: it fails; its own output stands above.
    """
    environ = {**os.environ, "REGISTRY": REGISTRY, "BASE": "wheels", **settings}
    print(f"bench: {' '.join(command)} {' '.join(f'{k}={v}' for k, v in settings.items())}", file=sys.stderr)
    start = time.monotonic()
    status = subprocess.run(
        command, cwd=folder, env=environ, stdout=subprocess.DEVNULL, check=False
    ).returncode
    if status:
        raise Refusal(f"the benchmark stopped: {' '.join(command)} ended with status {status}", 1)
    return time.monotonic() - start


def edit_profile(checkout: Path) -> None:
    path = checkout / "entrypoint" / "profiles" / "infer.yaml"
    path.write_text(path.read_text().replace("summary: ", "summary: Edited, ", 1))


def remove_images() -> None:
    client = docker_client()
    for image in client.images.list(name=REPOSITORY):
        for tag in image.tags:
            if tag.startswith(REPOSITORY):
                client.images.remove(tag, noprune=True)


def describe_machine() -> dict[str, str | int | None]:
    """What a reader needs to judge the times by; no names of hosts."""
    engine = docker_client().version()
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "cores": os.cpu_count(),
        "memory_gb": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 10**9,
        "kernel": platform.release().split("-")[0],
        "docker": engine["Version"],
    }


def format_table(rows: Sequence[Row]) -> str:
    """A table in Markdown."""
    lines = ["| measured | goal | found | |", "|---|---|---|---|"]
    for row in rows:
        verdict = "met" if row.found <= row.goal else "missed"
        lines.append(f"| {row.what} | {row.goal:g} {row.unit} | {row.found:.2f} {row.unit} | {verdict} |")
    return "\n".join(lines)
