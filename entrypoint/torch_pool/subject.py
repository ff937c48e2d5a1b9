"""The subject of a self-test: what a launch would set here, and so what torch must really do."""

from torch_pool import nvml
from torch_pool.conf import judge
from torch_pool.finding import Finding
from torch_pool.launch import CONF
from torch_pool.nvml import Inventory
from torch_pool.preparation import make_plan, planned_environment
from torch_pool.record import TYPE_CHECKING, NamedTuple
from torch_pool.resolution import MEMORY
from torch_pool.torch_version import DEFAULT_TORCH, image_torch
from torch_pool.visible import ORDER, VARIABLE, order_gpus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch_pool.conf import Allocator
    from torch_pool.launch import Baked
    from torch_pool.nvml import Gpu, Mig
    from torch_pool.preparation import Plan

_READ = (CONF, VARIABLE, ORDER)
_OTHER_NAMES = ("MUSA_VISIBLE_DEVICES", "PYTORCH_MUSA_ALLOC_CONF")
"""Near enough to be taken for a slip, but names of their own. Those of other vendors are farther away."""
_SLIPS = 2
"""Letters that are missing, wrong or too many."""


class Subject(NamedTuple):
    """`environ` is a launched command's. `gpus` are the intended devices in CUDA's order, None where unknown.

    `source` says where the conf came from, `memory` is the cap on one process, `wanted` the allocator that
    the caller of the self-test insists on, `site_dir` where the image's torch lies, if it has one.
    """

    profile: str
    allocator: "Allocator"
    backend: str
    conf: str
    source: str
    environ: "Mapping[str, str]"
    torch: str
    findings: tuple[Finding, ...] = ()
    memory: str | None = None
    gpus: "tuple[Gpu | Mig, ...] | None" = None
    wanted: str | None = None
    site_dir: str | None = None


def make_subject(environ: "Mapping[str, str]", baked: "Baked", wanted: str | None, *, quick: bool) -> Subject:
    """What a launch here would set; `quick` asks no GPU for anything.

    Raises Refusal where a launch would set nothing.
    """
    given = {**environ, "TORCH_POOL_PROBE": "0"} if quick else dict(environ)
    plan = make_plan([], given, baked, hold=False)
    planned = planned_environment(plan)
    installed = image_torch()
    torch = installed.version if installed else DEFAULT_TORCH
    conf = next(setting for setting in plan.settings if setting.name == CONF)
    verdict = judge(conf.value, torch)
    return Subject(
        profile=plan.profile.name,
        allocator=verdict.allocator,
        backend=verdict.backend,
        conf=conf.value,
        source=conf.source,
        environ=planned,
        torch=torch,
        findings=(*plan.findings, *misspelt(environ)),
        memory=_memory(plan),
        gpus=None if quick else _intended(planned),
        wanted=wanted,
        site_dir=installed.site_dir if installed else None,
    )


def misspelt(environ: "Mapping[str, str]") -> tuple[Finding, ...]:
    """Variables whose names are nearly those that torch and CUDA read; nothing complains about them."""
    return tuple(
        Finding("warn", "misspelt-variable", name, f"{name}={value} is read by nothing: rename it to {meant}")
        for name, value in environ.items()
        if name not in (*_READ, *_OTHER_NAMES)
        for meant in _READ
        if _is_near(name.upper().replace("ALLOCATOR", "ALLOC"), meant)
    )


def _is_near(name: str, meant: str) -> bool:
    return abs(len(name) - len(meant)) <= _SLIPS and _distance(name, meant) <= _SLIPS


def _distance(one: str, other: str) -> int:
    """The edit distance of Levenshtein, row by row."""
    row = list(range(len(other) + 1))
    for count, letter in enumerate(one, 1):
        before, row[0] = row[0], count
        for place, wanted in enumerate(other, 1):
            best = min(row[place] + 1, row[place - 1] + 1, before + (letter != wanted))
            before, row[place] = row[place], best
    return row[-1]


def _memory(plan: "Plan") -> str | None:
    return next((setting.value for setting in plan.settings if setting.name == MEMORY), None)


def _intended(environ: "Mapping[str, str]") -> "tuple[Gpu | Mig, ...] | None":
    inventory = nvml.query()
    return order_gpus(environ, inventory.gpus) if isinstance(inventory, Inventory) else None
