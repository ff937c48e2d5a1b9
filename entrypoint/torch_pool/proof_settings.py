"""Proofs about the settings: what can be said without torch, and what a shell beside the launch gets."""

import os

from torch_pool.launch import CONF, LAUNCHED
from torch_pool.preparation import NEVER_STRICT
from torch_pool.proof import Proof
from torch_pool.provenance import parse_record
from torch_pool.record import TYPE_CHECKING
from torch_pool.resolution import MEMORY
from torch_pool.visible import ORDER, VARIABLE, parse_visible

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch_pool.finding import Finding
    from torch_pool.subject import Subject

SETTINGS = "torch and CUDA take the settings and heed them"
ALLOCATOR = "the settings ask for the allocator that the caller insists on"
ENVIRONMENT = "what docker exec and a bypassed entrypoint give is what the launch gives"
NO_OBJECTION = "no objection"
EVAL = 'eval "$(torch-pool show --sh)"'
_NOT_HERE = ("no-memory-pools", "probe-failed")
"""Proved by the questions to torch, or told by them to be unknown."""
_NO_GPU = {"gpu-no-driver", "gpu-not-passed"}
_ALWAYS = dict.fromkeys((CONF, VARIABLE, ORDER, MEMORY))
"""Compared whatever a launch has set: a shell may have them of its own."""


def prove_settings(subject: "Subject") -> list[Proof]:
    """One proof for each finding of a launch about conf or devices; one in all where there is none."""
    faults = [finding for finding in subject.findings if _is_fault(finding)]
    found = [_unseen(subject, fault) or _unheeded(subject, fault) or refuted(fault) for fault in faults]
    if any(proof.status == "disproved" for proof in found):
        return found
    return [Proof("settings", SETTINGS, "proved", NO_OBJECTION, NO_OBJECTION), *found]


def _unseen(subject: "Subject", finding: "Finding") -> Proof | None:
    """Devices that a machine without any cannot show; what hides all devices anywhere is a fault here too."""
    codes = {finding.code for finding in subject.findings}
    visible = parse_visible(subject.environ.get(VARIABLE, ""))
    if finding.code != "gpu-hidden" or not (codes & _NO_GPU and visible.seen):
        return None
    found = f"{VARIABLE}={subject.environ[VARIABLE]}, and no GPU is here"
    return Proof(f"settings ({finding.code})", SETTINGS, "not provable", "a GPU", found, "run it there")


def refuted(finding: "Finding") -> Proof:
    """The finding as a proof that failed."""
    found, remedy = split_remedy(finding.message)
    if finding.code == "gpu-hidden":
        found, remedy = finding.message, f"unset {VARIABLE}, or list devices that this container has"
    name = f"settings ({finding.code})"
    return Proof(name, SETTINGS, "disproved", NO_OBJECTION, found, remedy)


def _unheeded(subject: "Subject", finding: "Finding") -> Proof | None:
    """Only the native allocator asks whether it may keep memory (CUDACachingAllocator.cpp of torch 2.6)."""
    if finding.code == "caching-disabled" and subject.allocator == "async":
        return refuted(finding)._replace(status="note")
    return None


def split_remedy(message: str) -> tuple[str, str]:
    """What happened, and what to do about it, which our messages say after the last colon or semicolon."""
    for mark in ("; ", ": "):
        found, has_mark, remedy = message.rpartition(mark)
        if has_mark:
            return found, remedy
    return message, "correct it"


def prove_allocator(subject: "Subject") -> list[Proof]:
    """Only where the caller names an allocator: the user's word wins, and nothing else would notice it."""
    if subject.wanted is None:
        return []
    found = f"{subject.allocator}, from {subject.source} ({subject.conf})"
    if subject.wanted == subject.allocator:
        return [Proof("allocator", ALLOCATOR, "proved", subject.wanted, found)]
    remedy = f"remove {subject.source}, or set TORCH_POOL_ALLOCATOR={subject.wanted}"
    return [Proof("allocator", ALLOCATOR, "disproved", subject.wanted, found, remedy)]


def prove_environment(subject: "Subject", environ: "Mapping[str, str]", root: str = "/") -> Proof:
    """This process's own environment, as `docker exec` gives it, against that of the launched command.

    Without one it is compared with what a launch would set, and a difference is a note.
    """
    launched = launched_environment(root)
    there = subject.environ if launched is None else launched
    made = parse_record(there.get(LAUNCHED, "")).made
    differing = [name for name in {**_ALWAYS, **made} if environ.get(name) != there.get(name)]
    expected, found = (_name(source, differing or [CONF]) for source in (there, environ))
    if not differing:
        return Proof("environment", ENVIRONMENT, "proved", expected, found)
    if launched is None:
        found = f"{found}; no launched command to compare with"
        remedy = f"where the entrypoint is bypassed, run {EVAL} first"
        return Proof("environment", ENVIRONMENT, "note", expected, found, remedy)
    remedy = f"run {EVAL} in this shell, then start the program"
    return Proof("environment", ENVIRONMENT, "disproved", expected, found, remedy)


def _name(environ: "Mapping[str, str]", names: "list[str]") -> str:
    return ", ".join(f"{name}={environ.get(name, 'unset')}" for name in names)


def launched_environment(root: str = "/") -> dict[str, str] | None:
    """The environment of the container's launched command; None where there is none, or it is another user's.

    Process 1 is the init of the image, which has the container's own environment; the command is its child.
    """
    for process in ("1", *_children_of_init(root)):
        environ = _read_environment(f"{root}proc/{process}/environ")
        if LAUNCHED in environ:
            return environ
    return None


def _children_of_init(root: str) -> list[str]:
    try:
        with open(f"{root}proc/1/task/1/children", encoding="ascii") as file:
            return file.read().split()
    except OSError:
        return []


def _read_environment(path: str) -> dict[str, str]:
    try:
        with open(path, "rb") as file:
            pairs = (os.fsdecode(pair).partition("=") for pair in file.read().split(b"\0") if pair)
            return {name: value for name, _, value in pairs}
    except OSError:
        return {}


def _is_fault(finding: "Finding") -> bool:
    if finding.severity == "note" or finding.code in _NOT_HERE:
        return False
    if finding.code.startswith("gpu-"):
        return finding.code == "gpu-hidden"
    return finding.code == "unknown-setting" or finding.code not in NEVER_STRICT
