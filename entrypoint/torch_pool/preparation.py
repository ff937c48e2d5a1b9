"""The preparation: everything a launch decides off the plain path, before it becomes the command."""

import os

from torch_pool.catalogue import choose_profile
from torch_pool.devices import ORDER
from torch_pool.finding import Finding
from torch_pool.hardware import fit
from torch_pool.home import settle_home
from torch_pool.hooks import check_hooks, list_hooks, run_hooks
from torch_pool.launch import LAUNCHED, record
from torch_pool.profile import Profile, profile_from_values
from torch_pool.provenance import CONTAINER, given_by_user, is_of_this_container, read_earlier, this_container
from torch_pool.record import TYPE_CHECKING, NamedTuple
from torch_pool.refusal import CONFIG, UNAVAILABLE, Refusal
from torch_pool.report import report, report_refusal
from torch_pool.resolution import Setting, resolve
from torch_pool.settings import Settings, read_settings
from torch_pool.surroundings import check_program, check_shm
from torch_pool.torch_version import DEFAULT_TORCH, image_torch_version
from torch_pool.visible import VARIABLE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch_pool.launch import Baked

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
        plan = make_plan(argv, environ, baked, hold=True)
        refuse(plan)
        prepared = planned_environment(plan)
        if list_hooks() or plan.asked.lock_dir:
            prepared[LAUNCHED] += f" {CONTAINER}={this_container()}"
        report(plan, is_news=prepared[LAUNCHED] != environ.get(LAUNCHED))
        if not is_of_this_container(environ):
            run_hooks(prepared)
    except Refusal as refusal:
        report_refusal(refusal, environ.get("TORCH_POOL_LOG"))
        return Prepared(environ, refusal.status)
    return Prepared(prepared)


def make_plan(argv: "Sequence[str]", environ: dict[str, str], baked: "Baked", *, hold: bool) -> Plan:
    """Everything that the launch of `argv` would set, and what there is to say about it. Raises Refusal.

    With `hold` the GPUs that are picked are locked, if the user wants locks.
    """
    given = given_by_user(environ, baked.CONF)
    asked = read_settings(given)
    asked = asked if hold else asked._replace(lock_dir=None)
    chosen = choose_profile(asked.profile, profile_from_values(baked.PROFILE))
    resolution = resolve(given, asked, chosen, image_torch_version() or DEFAULT_TORCH)
    # Where GPUs are locked, a pick that was copied from elsewhere would be one without a lock.
    believed = not asked.lock_dir or is_of_this_container(environ)
    earlier = read_earlier(environ).made if believed else {}
    picked = {name: earlier[name] for name in (VARIABLE, ORDER) if name in earlier}
    fitted = fit(resolution, asked, given, argv, picked=picked)
    home = settle_home({**chosen.profile.env, **given}, os.getuid())
    conf, *others = resolution.settings
    settings = (fitted.conf or conf, *others, *fitted.devices, *home.settings)
    backend = "native" if fitted.conf else resolution.verdict.backend
    findings = (
        *resolution.findings,
        *fitted.findings,
        *home.findings,
        *check_shm(resolution.profile),
        *check_program(argv, backend),
        *check_hooks(),
    )
    if asked.strict:
        findings = tuple(map(harden, findings))
    return Plan(resolution.profile, backend, settings, findings, given, asked)


def harden(finding: Finding) -> Finding:
    """The finding under TORCH_POOL_STRICT: a warning about conf, devices, GPU or fallback refuses."""
    if finding.severity != "warn" or finding.code in NEVER_STRICT:
        return finding
    message = f"{finding.message} (refused because of TORCH_POOL_STRICT=1)"
    return finding._replace(severity="refuse", message=message)


def refuse(plan: Plan) -> None:
    """Raise Refusal for the first finding that must stop the start."""
    for finding in plan.findings:
        if finding.severity == "refuse":
            raise Refusal(finding.message, _status(finding))


def planned_environment(plan: Plan) -> dict[str, str]:
    """The environment of the command: what the user gave, what the launch sets, and a record of that."""
    made = {
        setting.name: setting.value
        for setting in plan.settings
        if plan.given.get(setting.name) != setting.value
    }
    return {**plan.given, **made, LAUNCHED: record(plan.profile.name, made)}


def _status(finding: Finding) -> int:
    return UNAVAILABLE if finding.code.startswith("gpu-") else CONFIG
