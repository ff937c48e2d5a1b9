"""What works under the allocator of this subject: measured, each thing in a process of its own."""

import json
import os

from torch_pool.interrogation import interrogate
from torch_pool.record import TYPE_CHECKING, NamedTuple
from torch_pool.refusal import UNAVAILABLE

if TYPE_CHECKING:
    from typing import Literal

    from torch_pool.interrogation import Answer
    from torch_pool.subject import Subject

    Result = Literal["works", "refused", "crashed", "not provable"]

PROBE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_capabilities.py")
LIMIT_SECONDS = 180.0
JSON_FORMAT = 1
"""1: profile, allocator, conf, torch, capabilities (the fields of Capability)."""
NAMES = {
    "cuda-graph": "a CUDA graph is captured and replayed",
    "compile-default": "torch.compile",
    "compile-reduce-overhead": "torch.compile with mode reduce-overhead (CUDA-graph trees)",
    "cuda-ipc": "a CUDA tensor shared with another process",
    "mempool": "torch.cuda.MemPool",
    "memory-snapshot": "torch.cuda.memory_snapshot",
    "memory-history": "recording of the memory history",
    "oom-observer": "an observer of out-of-memory errors",
    "pinned-options": "the pinned_* options of the conf",
    "memory-fraction": "set_per_process_memory_fraction as a limit",
    "auto-batch-size": "automatic halving of the batch size (the text of the error)",
}


class Capability(NamedTuple):
    """`detail` is in torch's words where it does not work."""

    name: str
    what: str
    result: "Result"
    detail: str
    seconds: float


def measure(subject: "Subject", limit_seconds: float = LIMIT_SECONDS) -> tuple[Capability, ...]:
    """Every capability; a crash is a result. Without a GPU only the first is tried."""
    measured: list[Capability] = []
    for name, what in NAMES.items():
        if measured and measured[0].result == "not provable":
            measured.append(Capability(name, what, "not provable", "no GPU", 0.0))
            continue
        answers = interrogate((name,), subject.environ, probe=PROBE, limit_seconds=limit_seconds)
        measured.append(_judge(name, what, answers[name]))
    return tuple(measured)


def format_text(subject: "Subject", measured: tuple[Capability, ...]) -> str:
    """For people: a line for each."""
    width = max(len(capability.name) for capability in measured)
    head = f"torch {subject.torch}, allocator {subject.allocator} ({subject.conf or 'no conf'})"
    lines = [
        f"{capability.result:<12}  {capability.name:<{width}}  {capability.what}{_why(capability)}"
        for capability in measured
    ]
    return "\n".join([head, "", *lines]) + "\n"


def format_json(subject: "Subject", measured: tuple[Capability, ...]) -> str:
    """For programs: one object on one line."""
    head = {name: getattr(subject, name) for name in ("profile", "allocator", "conf", "torch")}
    found = [capability._asdict() for capability in measured]
    return json.dumps({"format": JSON_FORMAT, **head, "capabilities": found}) + "\n"


def status(measured: tuple[Capability, ...]) -> int:
    """0 where it was measured, whatever works; 69 where it could not be."""
    return UNAVAILABLE if measured[0].result == "not provable" else 0


def _judge(name: str, what: str, answer: "Answer") -> Capability:
    seconds = round(answer.seconds, 3)
    if answer.error is None:
        return Capability(name, what, "works", "", seconds)
    if answer.error.startswith("LookupError"):
        return Capability(name, what, "not provable", "no GPU", seconds)
    return Capability(name, what, "crashed" if answer.crashed else "refused", answer.error, seconds)


def _why(capability: Capability) -> str:
    return f": {capability.detail}" if capability.detail else ""
