"""The preparation: everything a launch decides off the plain path, before it becomes the command."""

import os
import sys

from torch_pool.catalogue import choose_profile
from torch_pool.finding import Finding
from torch_pool.home import settle_home
from torch_pool.hooks import check_hooks, run_hooks
from torch_pool.launch import LAUNCHED, record
from torch_pool.profile import Profile, profile_from_values
from torch_pool.provenance import given_by_user, read_earlier
from torch_pool.record import TYPE_CHECKING, NamedTuple
from torch_pool.refusal import UNAVAILABLE, Refusal
from torch_pool.report import report, report_refusal
from torch_pool.resolution import Resolution, Setting, resolve
from torch_pool.settings import Settings, read_settings
from torch_pool.surroundings import check_program, check_shm
from torch_pool.torch_version import installed_torch_version

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch_pool.launch import Baked

DEFAULT_TORCH = "2.6"
"""Judged for where no torch is found: the torch of our images."""
NEVER_STRICT = ("shm-small", "no-writable-directory", "cache-noexec", "hook-skipped", "unknown-setting")
"""Findings that TORCH_POOL_STRICT leaves warnings: they are not about conf, devices, GPU or fallback."""


class Plan(NamedTuple):
    """What a launch would do. `given` is the environment that it starts from, `backend` that of the conf."""

    profile: Profile
    backend: str
    settings: tuple[Setting, ...]
    findings: tuple[Finding, ...]
    given: dict[str, str]
    asked: Settings


class Prepared(NamedTuple):
    """The command's environment, or the status of a refusal that has been reported."""

    environ: dict[str, str]
    status: int | None = None


def prepare(argv: list[str], environ: dict[str, str], baked: "Baked") -> Prepared:
    """Decide, refuse or report, and run the hooks."""
    try:
        plan = make_plan(argv, environ, baked)
        refuse(plan)
        prepared = planned_environment(plan)
        report(plan, is_news=prepared[LAUNCHED] != environ.get(LAUNCHED))
        if not read_earlier(environ).profile:
            run_hooks(prepared)
    except Refusal as refusal:
        report_refusal(refusal, environ.get("TORCH_POOL_LOG"))
        return Prepared(environ, refusal.status)
    return Prepared(prepared)


def make_plan(argv: "Sequence[str]", environ: dict[str, str], baked: "Baked", source: str = "") -> Plan:
    """Everything that the launch of `argv` would set, and what there is to say about it. Raises Refusal."""
    given = given_by_user(environ, baked.CONF)
    asked = read_settings(given)
    chosen = choose_profile(asked.profile, profile_from_values(baked.PROFILE), source or "TORCH_POOL_PROFILE")
    resolution = resolve(given, asked, chosen, installed_torch_version(_site_directories()) or DEFAULT_TORCH)
    home = settle_home(given, os.getuid())
    devices, gpu_findings = look_at_gpus(resolution, asked, given)
    findings = [
        *resolution.findings,
        *gpu_findings,
        *home.findings,
        *check_shm(resolution.profile),
        *(check_program(argv, resolution.verdict.backend) if argv else ()),
        *check_hooks(),
    ]
    settings = (*resolution.settings, *devices, *home.settings)
    return Plan(resolution.profile, resolution.verdict.backend, settings, tuple(findings), given, asked)


def look_at_gpus(
    resolution: Resolution, asked: Settings, given: dict[str, str]
) -> tuple[tuple[Setting, ...], tuple[Finding, ...]]:
    """The choice of devices, the GPU policy and the fallback of the allocator."""
    return (), ()


def refuse(plan: Plan) -> None:
    """Raise Refusal for the gravest finding that must stop the start; strict makes warnings grave."""
    for finding in plan.findings:
        if finding.severity == "refuse":
            raise Refusal(finding.message, *([UNAVAILABLE] if finding.code.startswith("gpu-") else []))
    for finding in plan.findings:
        if plan.asked.strict and finding.severity == "warn" and finding.code not in NEVER_STRICT:
            raise Refusal(f"{finding.message} (refused because of TORCH_POOL_STRICT=1)")


def planned_environment(plan: Plan) -> dict[str, str]:
    """The environment of the command: what the user gave, what the launch sets, and a record of that."""
    made = {
        setting.name: setting.value
        for setting in plan.settings
        if plan.given.get(setting.name) != setting.value
    }
    return {**plan.given, **made, LAUNCHED: record(plan.profile.name, made)}


def _site_directories() -> list[str]:
    """Where the image's torch may be; this Python runs without site packages on its path."""
    import site  # noqa: PLC0415 - os and sys are enough everywhere else

    return [*sys.path, *site.getsitepackages()]
