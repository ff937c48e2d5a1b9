"""The bases: the table images/bases.yaml, and which of its rows, or which other reference, a build uses."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch_pool.refusal import USAGE, Refusal

from scripts.images import NAME, NAME_WORDS, ROOT
from scripts.reference import REFERENCE, choose_registry
from scripts.settings import Setting, nearest, shown
from scripts.table import read_table, to_record

TABLE = ROOT / "images" / "bases.yaml"
REGISTRY, WHEELS = "registry", "wheels"


@dataclass(frozen=True)
class Base:
    """A PyTorch-CUDA image to build upon. Empty text: not known before it was looked into (any reference).

    `driver_floor` is the oldest NVIDIA driver branch, `require_cuda` the NVIDIA_REQUIRE_CUDA of its images,
    `budget_mb` what it may take unpacked, in decimal MB (None: no budget).
    """

    name: str
    kind: str
    reference: str = ""
    digest: str | None = None
    torch: str = ""
    cuda: str = ""
    cudnn: str = ""
    python: str = ""
    python_path: str = ""
    platforms: tuple[str, ...] = ()
    driver_floor: int | None = None
    require_cuda: str = ""
    budget_mb: int | None = None

    @property
    def pinned(self) -> str:
        """The reference, with its digest where one is known."""
        return f"{self.reference}@{self.digest}" if self.digest else self.reference


@dataclass(frozen=True)
class Table:
    default: str
    bases: Mapping[str, Base]
    rootfs: Mapping[str, str]


def load_table(path: Path = TABLE) -> Table:
    """The table of bases.

    Raises:
        Refusal: the file cannot be read, or a row lacks a key or has one that is not known.
    """
    values = read_table(path)
    rows = values.get("bases")
    if isinstance(rows, dict):
        values["bases"] = {name: _read_row(name, row, path) for name, row in rows.items()}
    table = to_record(Table, values, path.name)
    if table.rootfs.keys() != {"reference", "suite"}:
        raise Refusal(f"{path.name}: rootfs must have the keys reference and suite, and no other")
    bases = table.bases
    for name in (table.default, WHEELS):
        if name not in bases:
            raise Refusal(f"{path.name} names the base {name}, but has no such row; rows: {', '.join(bases)}")
    return table


def _read_row(name: str, row: Any, path: Path) -> Base:
    if not isinstance(row, dict):
        raise Refusal(f"{path.name}, row {name} holds no mapping of keys to values")
    place = f"{path.name}, row {name}"
    base = to_record(Base, {**row, "name": name}, place)
    if not NAME.fullmatch(name):
        raise Refusal(f"{place}: the name becomes a tag, so it must be {NAME_WORDS}")
    if base.kind not in (REGISTRY, WHEELS):
        raise Refusal(f"{place}: kind is {shown(base.kind)}, but must be {REGISTRY} or {WHEELS}")
    if base.kind == REGISTRY and not REFERENCE.fullmatch(base.pinned):
        raise Refusal(f"{place}: {shown(base.pinned)}, of reference and digest, is no image reference")
    for key, value in (("budget_mb", base.budget_mb), ("driver_floor", base.driver_floor)):
        if value is not None and value < 1:
            raise Refusal(f"{place}: {key} is {value}, but must be 1 or more")
    return base


def candidates(setting: Setting, table: Table, mirror: Setting) -> tuple[Base, ...]:
    """The bases that BASE may mean, in the order in which to try them; `mirror` replaces their registry.

    Raises:
        Refusal: the value is no row of the table and no reference, or the mirror is no registry.
    """
    if setting.value == "auto":
        rows: tuple[Base, ...] = (table.bases[table.default], table.bases[WHEELS])
    elif setting.value in table.bases:
        rows = (table.bases[setting.value],)
    else:
        rows = (_any_reference(setting, table),)
    registry = choose_registry(mirror)
    return tuple(_mirrored(base, registry) for base in rows)


def _any_reference(setting: Setting, table: Table) -> Base:
    match = REFERENCE.fullmatch(setting.value)
    if not match or not (match["tag"] or match["digest"] or "/" in setting.value):
        known = nearest(setting.value, ["auto", *table.bases])
        raise Refusal(
            f"BASE is {shown(setting.value)} (from {setting.place}), no base and no reference{known}",
            USAGE,
        )
    reference = setting.value.partition("@")[0]
    # It becomes a tag of ours, which may have 128 characters; what differs behind them is seen in its inputs.
    name = re.sub(r"[^a-z0-9.-]+", "-", reference.lower())[:128]
    return Base(name, REGISTRY, reference, match["digest"])


def _mirrored(base: Base, registry: str) -> Base:
    if not registry or base.kind != REGISTRY:
        return base
    host, slash, rest = base.reference.partition("/")
    path = rest if slash and ("." in host or ":" in host or host == "localhost") else base.reference
    return replace(base, reference=f"{registry}/{path}")


def missing_tag(base: Base, setting: Setting, table: Table, reason: str) -> Refusal:
    """The refusal for a base that no registry gives: its parts, where they came from, the known tags."""
    row = table.bases.get(base.name)
    source = f"row {base.name} of images/bases.yaml" if row else "BASE"
    known = ", ".join(other.reference.rpartition("/")[2] for other in table.bases.values() if other.reference)
    return Refusal(
        f"the base {base.pinned} cannot be had: {reason} (reference from {source}, BASE={setting.value} from "
        f"{setting.place}); use BASE=wheels, BASE_REGISTRY=a-mirror, or one of the known tags: {known}"
    )


def require_cuda(cuda: str) -> str:
    """NVIDIA_REQUIRE_CUDA for a base outside the table, from torch's CUDA version such as 12.4.

    Minor-version compatibility: any driver of the same major release will do; 11.4 because torch refuses the
    async allocator below it.
    """
    major = cuda.partition(".")[0]
    return "cuda>=11.4" if major == "11" else f"cuda>={major}.0"
