"""The base as it stands in this engine: chosen, built with its common layer, and looked into."""

import hashlib
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from torch_pool.refusal import Refusal

from scripts.bases import WHEELS, Base, candidates, missing_tag, require_cuda
from scripts.builder import (
    Builder,
    Output,
    image_id,
    image_labels,
    image_platform,
    remove_nameless,
    require_room,
    run_build,
    uv_binary,
)
from scripts.context import BUILD, lay_out_base, source_files
from scripts.diagnosis import diagnose
from scripts.facts import Facts, parse_facts, read_facts
from scripts.images import ROOT
from scripts.layers import Layer, read_layers, stored_bytes, total_bytes
from scripts.lock import exclusive
from scripts.rootfs import layout_digest, make_rootfs

REPOSITORY = "torch-pool-base"
INPUTS_LABEL = "io.torch-pool.base.inputs"
PYTHON = "/opt/torch-pool/bin/python"
# Measured for the wheels base on a new engine: layers, their blobs, the package cache. A registry base holds
# its compressed blobs and what they unpack to; one that is here already only gets its small common layer.
WHEELS_DISK_BYTES, LOCAL_DISK_BYTES, UNKNOWN_DISK_BYTES = 20_000_000_000, 2_000_000_000, 25_000_000_000
_REGISTRY_SECONDS = 20
_FOLDER = ROOT / "images" / "bases"


@dataclass(frozen=True)
class ReadyBase:
    """A base in this engine: `tag` to build upon, `facts` of what it holds, its `layers`.

    `unpacked_bytes` is the sum of its uncompressed layers; exact where the base is built here, else rounded
    up to disk blocks. `stored_bytes` is what the engine counts, see layers.stored_bytes.
    """

    base: Base
    tag: str
    facts: Facts
    platform: str
    layers: tuple[Layer, ...]
    stored_bytes: int
    unpacked_bytes: int


def ensure_base(builder: Builder) -> ReadyBase:
    """Finds or builds the base that BASE means; says which it took and why.

    Raises:
        Refusal: none can be had, or it is not what the table says.
    """
    base, reason = choose_base(builder)
    print(f"base: {base.name}, {reason}", file=sys.stderr)
    tag = base_tag(base)
    with exclusive(BUILD / "locks" / "base.lock", "another build makes a base; waiting for it"):
        _ensure_built(builder, base, tag)
    facts = _kept_facts(builder, tag)
    base = replace(base, require_cuda=base.require_cuda or require_cuda(facts.cuda))
    layers, stored = read_layers(builder.client, tag), stored_bytes(builder.client, tag)
    exact = base.kind == WHEELS or not builder.engine.image_store
    platform = image_platform(builder.client, tag)
    return ReadyBase(base, tag, facts, platform, layers, stored, stored if exact else total_bytes(layers))


def choose_base(builder: Builder) -> tuple[Base, str]:
    """The base to use, and why: what is in the engine, then what a registry gives, then what is built here.

    Raises:
        Refusal: BASE names one thing, and that cannot be had.
    """
    settings = builder.settings
    choices = candidates(settings.base, builder.table, settings.base_registry)
    for base in choices:
        if _is_local(builder, base):
            return base, "which this engine holds"
    reason = "built here"
    for base in choices:
        if base.kind == WHEELS:
            return base, reason
        problem = _registry_problem(base.pinned)
        if not problem:
            return base, f"from its registry as {base.pinned}"
        reason = f"built here, because of {base.reference}: {problem.partition(';')[0]}"
    raise missing_tag(choices[0], settings.base, builder.table, problem)


def _is_local(builder: Builder, base: Base) -> bool:
    ours = image_labels(builder.client, base_tag(base)) or {}
    return INPUTS_LABEL in ours or bool(base.reference and image_id(builder.client, base.pinned))


def base_tag(base: Base) -> str:
    return f"{REPOSITORY}:{base.name}"


def _registry_problem(reference: str) -> str:
    """Empty where a registry has the reference, else why not."""
    command = ["docker", "buildx", "imagetools", "inspect", reference]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=_REGISTRY_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"the registry of {reference} did not answer in {_REGISTRY_SECONDS} s"
    return "" if run.returncode == 0 else diagnose(run.stderr)


def _ensure_built(builder: Builder, base: Base, tag: str) -> None:
    labels = image_labels(builder.client, tag)
    if labels is not None and INPUTS_LABEL not in labels:
        raise Refusal(f"the name {tag} is taken by an image that is not ours; remove or rename that image")
    wanted = base_inputs(base, builder.table.rootfs)
    if labels is None or labels[INPUTS_LABEL] != wanted or builder.no_cache:
        _build(builder, base, tag, wanted)


def needed_bytes(base: Base, *, local: bool) -> int:
    """The disk that a base takes while it is made; `local`: what it starts from is in the engine."""
    if local:
        return LOCAL_DISK_BYTES
    if base.kind == WHEELS:
        return WHEELS_DISK_BYTES
    return 2_000_000 * base.budget_mb if base.budget_mb else UNKNOWN_DISK_BYTES


def base_inputs(base: Base, rootfs: Mapping[str, str], folder: Path = _FOLDER) -> str:
    """A digest of everything in the checkout that goes into a base: its row, its root file system, files."""
    row = {**asdict(base), "rootfs": dict(rootfs) if base.kind == WHEELS else {}}
    digest = hashlib.sha256(json.dumps(row, sort_keys=True).encode())
    for path in source_files(folder):
        digest.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def _build(builder: Builder, base: Base, tag: str, inputs: str) -> None:
    local = bool(base.reference and image_id(builder.client, base.pinned))
    require_room(builder, needed_bytes(base, local=local), f"the base {base.name}")
    python = base.python_path or _find_python(builder, base)
    arguments = [*_rootfs_argument(builder, base), *base_arguments(base, python, inputs)]
    replaced = image_id(builder.client, tag)
    run_build(builder, Output(tag), _FOLDER / "Dockerfile", lay_out_base(uv_binary()), arguments)
    if replaced != image_id(builder.client, tag):
        remove_nameless(builder.client, replaced)


def base_arguments(base: Base, python: str, inputs: str) -> list[str]:
    """What varies per base, as images/bases/Dockerfile declares it, and the label that marks it as ours."""
    return [
        f"--build-arg=START={WHEELS if base.kind == WHEELS else base.pinned}",
        f"--build-arg=PYTHON={python}",
        f"--build-arg=TORCH={base.torch}",
        f"--build-arg=CUDA={base.cuda}",
        f"--label={INPUTS_LABEL}={inputs}",
    ]


def _rootfs_argument(builder: Builder, base: Base) -> list[str]:
    """The root file system that the wheels base starts from: a registry's where one can be had."""
    if base.kind != WHEELS:
        return []
    reference, suite = builder.table.rootfs["reference"], builder.table.rootfs["suite"]
    if not _registry_problem(reference):
        return [f"--build-context=rootfs=docker-image://{reference}"]
    options = _FOLDER / "wheels" / "dpkg.conf"
    layout = make_rootfs(BUILD / "rootfs", suite, builder.machine.apt_sources, options, builder.settings)
    return [f"--build-context=rootfs=oci-layout://{layout}@{layout_digest(layout)}"]


def _find_python(builder: Builder, base: Base) -> str:
    """The interpreter of a base outside the table.

    Raises:
        Refusal: the image has none on its PATH.
    """
    if not image_id(builder.client, base.pinned):
        builder.client.images.pull(base.pinned)
    script = "command -v python || command -v python3 || true"
    output = builder.client.containers.run(base.pinned, ["-c", script], entrypoint="sh", remove=True)
    path: str = output.decode().strip()
    if not path:
        raise Refusal(f"the base {base.pinned} has no python on its PATH; it must hold a PyTorch of its own")
    return path


def _kept_facts(builder: Builder, tag: str) -> Facts:
    """Kept under the image's id: an image never changes, and reading them costs an import of torch."""
    identity = image_id(builder.client, tag).removeprefix("sha256:")
    path = BUILD / "facts" / f"{identity}.json"
    if not path.exists():
        facts = read_facts(builder.client, tag, [PYTHON, "-I"], entrypoint=[])
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(asdict(facts)))
        partial.replace(path)
    return parse_facts(path.read_text())
