"""The subject of a self-test: what a launch would set here, and so what torch must really do."""

import difflib

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
_OTHER_NAMES = (
    "PYTORCH_HIP_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
    "NVIDIA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
)
"""Near enough to be taken for a slip, but names of their own."""
_LIKENESS = 0.85


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
    found = []
    for name in environ:
        near = difflib.get_close_matches(name.upper(), _READ, n=1, cutoff=_LIKENESS)
        if near and name not in (*_READ, *_OTHER_NAMES):
            message = f"{name}={environ[name]} is read by nothing: rename it to {near[0]}"
            found.append(Finding("warn", "misspelt-variable", name, message))
    return tuple(found)


def _memory(plan: "Plan") -> str | None:
    return next((setting.value for setting in plan.settings if setting.name == MEMORY), None)


def _intended(environ: "Mapping[str, str]") -> "tuple[Gpu | Mig, ...] | None":
    inventory = nvml.query()
    return order_gpus(environ, inventory.gpus) if isinstance(inventory, Inventory) else None
