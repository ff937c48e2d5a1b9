"""The conf: judging PYTORCH_CUDA_ALLOC_CONF for any torch from 2.0 to 2.14 without importing it.

torch accepts wrong strings silently, or refuses them late and in few words. `judge` says beforehand what it
would do, and what to do about it.
"""

from torch_pool.conf_keys import NEWEST_MINOR, OLDEST_MINOR, TOKENIZER_MINOR
from torch_pool.conf_normal import normalise
from torch_pool.conf_parser import parse_conf
from torch_pool.conf_rules import Case, find, show
from torch_pool.finding import Finding
from torch_pool.record import TYPE_CHECKING, NamedTuple
from torch_pool.torch_version import minor_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Literal

    from torch_pool.conf_keys import Value
    from torch_pool.conf_parser import Parse

    Allocator = Literal["async", "native", "expandable"]
    When = Literal["import", "init", "late"]

__all__ = [
    "CONF_BY_ALLOCATOR",
    "Finding",
    "Verdict",
    "judge",
    "judge_environment",
]

CONF_BY_ALLOCATOR = {
    "async": "backend:cudaMallocAsync",
    "native": "backend:native",
    "expandable": "expandable_segments:True",
}
"""The whole conf for each allocator: what one word in TORCH_POOL_ALLOCATOR stands for."""


class Verdict(NamedTuple):
    """What torch would make of a conf, and what we say about it.

    `torch` is the minor version judged for. `accepted` is torch's verdict and ours is in `findings`: we also
    refuse some confs that torch accepts. `error` is in torch's words, `when` says where it would strike.
    `settings` are torch's resulting values under torch's names (sizes in bytes), `normalised` is the conf to
    export; both are None for a conf that is not accepted.
    """

    conf: str
    torch: str
    accepted: bool
    error: str | None
    when: "When | None"
    backend: str
    allocator: "Allocator"
    settings: "Mapping[str, Value] | None"
    findings: tuple[Finding, ...]
    normalised: str | None


def judge(conf: str, torch_version: str) -> Verdict:
    """The verdict on `conf` for `torch_version` (such as `2.6.0+cu124` or `2.6`). Raises nothing."""
    minor = _table_minor(torch_version)
    parse = parse_conf(conf, minor)
    findings = tuple(find(Case(conf, minor, parse, _moment(parse))))
    if not _is_in_table(torch_version):
        return _verdict_on_unknown_torch(conf, torch_version, parse, findings)
    accepted = parse.settings is not None and "\0" not in conf
    return Verdict(
        conf,
        f"2.{minor}",
        accepted,
        parse.error,
        None if accepted else _moment(parse),
        parse.backend,
        _allocator(parse),
        parse.settings if accepted else None,
        findings,
        normalise(parse) if accepted else None,
    )


def _verdict_on_unknown_torch(
    conf: str, torch_version: str, parse: "Parse", findings: tuple[Finding, ...]
) -> Verdict:
    """We cannot know what this torch accepts: nothing is refused, what we would refuse becomes a warning."""
    judged_for = f"2.{_table_minor(torch_version)}"
    unknown = Finding(
        "warn",
        "unknown-torch",
        None,
        f"torch {show(torch_version)} is not in the table (2.{OLDEST_MINOR} to 2.{NEWEST_MINOR}) and the "
        f"conf was judged as for {judged_for}: update torch-pool, or try the conf by hand",
    )
    softened = (f._replace(severity="warn") if f.severity == "refuse" else f for f in findings)
    known = parse.settings is not None
    return Verdict(
        conf,
        judged_for,
        True,
        None,
        None,
        parse.backend,
        _allocator(parse),
        parse.settings,
        (unknown, *softened),
        normalise(parse) if known else None,
    )


def judge_environment(environ: "Mapping[str, str]", torch_version: str) -> tuple[Finding, ...]:
    """Findings on the variables beside PYTORCH_CUDA_ALLOC_CONF that torch reads, or does not read."""
    found = (_new_name(environ, torch_version), _hip_name(environ), _no_caching(environ))
    return tuple(finding for finding in found if finding)


def _new_name(environ: "Mapping[str, str]", torch_version: str) -> Finding | None:
    """CUDA reads PYTORCH_ALLOC_CONF from torch 2.10 on, and only where the old name is not set."""
    name = "PYTORCH_ALLOC_CONF"
    if name not in environ:
        return None
    minor = _table_minor(torch_version)
    if minor < TOKENIZER_MINOR:
        reason = f"is not read by torch 2.{minor}: set PYTORCH_CUDA_ALLOC_CONF instead"
        return Finding("warn", "alloc-conf-unread", name, f"{name}={show(environ[name])} {reason}")
    if "PYTORCH_CUDA_ALLOC_CONF" in environ:
        reason = "is overruled by PYTORCH_CUDA_ALLOC_CONF, which is set as well: set only the latter"
        return Finding("warn", "alloc-conf-overruled", name, f"{name}={show(environ[name])} {reason}")
    return None


def _hip_name(environ: "Mapping[str, str]") -> Finding | None:
    name = "PYTORCH_HIP_ALLOC_CONF"
    if name not in environ:
        return None
    reason = "is not read by torch for CUDA: set PYTORCH_CUDA_ALLOC_CONF instead"
    return Finding("warn", "hip-conf-unread", name, f"{name}={show(environ[name])} {reason}")


def _no_caching(environ: "Mapping[str, str]") -> Finding | None:
    """The mere presence counts in torch 2.6 (has_env in CUDACachingAllocator.cpp); 2.11 takes 0 for off."""
    name = "PYTORCH_NO_CUDA_MEMORY_CACHING"
    if name not in environ:
        return None
    reason = "turns the native allocator's cache off whatever its value (newer torch excepts 0): unset it"
    return Finding("warn", "caching-disabled", name, f"{name}={show(environ[name])} {reason}")


def _is_in_table(torch_version: str) -> bool:
    minor = minor_of(torch_version)
    return minor is not None and OLDEST_MINOR <= minor <= NEWEST_MINOR


def _table_minor(torch_version: str) -> int:
    """The nearest minor version in the table; the newest for a text that names no version."""
    if torch_version.strip().startswith(("0.", "1.")):
        return OLDEST_MINOR
    minor = minor_of(torch_version)
    return NEWEST_MINOR if minor is None else min(minor, NEWEST_MINOR)


def _moment(parse: "Parse") -> "When":
    """Native parses when CUDA starts; with async nothing does until something reads a setting."""
    if parse.fails_at_import:
        return "import"
    return "late" if parse.backend == "cudaMallocAsync" else "init"


def _allocator(parse: "Parse") -> "Allocator":
    if parse.backend == "cudaMallocAsync":
        return "async"
    return "expandable" if (parse.settings or {}).get("expandable_segments") else "native"
