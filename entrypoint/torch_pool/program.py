"""The user's program under the self-test: what its torch really used, told by the in-process hook."""

import json
import os
import shutil
import signal
import subprocess
import tempfile

from torch_pool.launch import CONF, SHM, candidates
from torch_pool.proof import Proof, compare
from torch_pool.proof_torch import prove_image_torch
from torch_pool.record import TYPE_CHECKING, NamedTuple
from torch_pool.refusal import Refusal
from torch_pool.visible import VARIABLE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from torch_pool.subject import Subject

REPORT = "TORCH_POOL_HOOK_REPORT"
HOOK = "TORCH_POOL_HOOK"

BACKEND = "the program's torch chose its allocator by this conf"
LATE = "nothing changed the settings after torch or CUDA had read them"
MEMORY = "the program's memory was allocated by this allocator"
CAP = "the memory cap was applied when the program started CUDA"
NO_WORD = "the program did not end as programs do (os._exit, a signal): no word at its end"
_KINDS = {
    "async": "bytes alone",
    "native": "fixed segments",
    "expandable": "expandable segments",
}


class Ran(NamedTuple):
    """How the command ended, and what the hook told in each of its Python processes."""

    status: int
    told: "tuple[Mapping[str, Any], ...]"


def run(command: "Sequence[str]", environ: "Mapping[str, str]") -> Ran:
    """Run the command to its end. Its output goes to stderr, for stdout is the report's.

    Raises Refusal where it cannot be started, or no directory can be written.
    """
    try:
        directory = tempfile.mkdtemp(prefix="torch-pool-", dir=_writable())
    except OSError as error:
        raise Refusal(f"no directory for the hook's report can be made ({error}); mount a /tmp") from error
    try:
        hooked = {**environ, HOOK: "1", REPORT: directory}
        status = _wait(subprocess.Popen(command, env=hooked, stdout=2))
        return Ran(status, tuple(_read(directory)))
    except OSError as error:
        names = candidates(command[0], environ.get("PATH", os.defpath))
        raise Refusal(
            f"{command[0]!r} cannot be started ({error.strerror}); looked for {names}", 127
        ) from error
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _wait(program: "subprocess.Popen[bytes]") -> int:
    """The status of the program, which signals end, and not us: there is a report to be made.

    The terminal gives SIGINT to both. Handlers, because an ignored signal would stay ignored in a program.
    """

    def forward(number: int, _frame: object) -> None:
        program.send_signal(number)

    taken = {signal.SIGINT: lambda *_: None, signal.SIGTERM: forward, signal.SIGHUP: forward}
    before = {number: signal.signal(number, handler) for number, handler in taken.items()}
    try:
        return program.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def prove_program(subject: "Subject", ran: Ran) -> list[Proof]:
    """The proofs of each process that loaded torch."""
    with_torch = [told for told in ran.told if "load" in told]
    each = {told["pid"]: _prove(subject, told) for told in with_torch}
    if any(proof.name == "memory" and proof.status == "proved" for found in each.values() for proof in found):
        helpers = [told["pid"] for told in with_torch if "cuda" not in told]
        each |= {pid: [_excuse(proof) for proof in each[pid]] for pid in helpers}
    proofs = [p._replace(name=f"{p.name} of {pid}") for pid, found in each.items() for p in found]
    if len(with_torch) == 1:
        proofs = [proof._replace(name=proof.name.partition(" of ")[0]) for proof in proofs]
    if not with_torch:
        why = "no process told that it loaded torch"
        remedy = "the hook runs in the image's own Python, unless it is started with -S"
        proofs = [Proof("program", BACKEND, "not provable", "a program that loads torch", why, remedy)]
    if ran.status:
        found = f"status {ran.status}"
        proofs.append(Proof("end", "the program ends well", "note", "status 0", found, "see its own words"))
    return proofs


def _excuse(proof: Proof) -> Proof:
    """Of a process without CUDA, such as torchrun's launcher, nothing is missing where others used a GPU."""
    return proof._replace(status="note") if proof.status == "not provable" else proof


def _prove(subject: "Subject", told: "Mapping[str, Any]") -> list[Proof]:
    proofs = [
        prove_image_torch(subject, told["load"]),
        _prove_backend(subject, told),
        _prove_nothing_late(told),
        _prove_memory(subject, told),
    ]
    if subject.memory:
        proofs.append(_prove_cap(subject, told))
    return proofs


def _prove_backend(subject: "Subject", told: "Mapping[str, Any]") -> Proof:
    load = told["load"]
    expected = f"{subject.backend} by {CONF}={subject.conf}"
    found = f"{load['backend']} by {CONF}={load['conf']}"
    if load["conf"] != told["start"]["conf"]:
        remedy = f"the program sets {CONF} before it imports torch: remove that, or give the value with -e"
    else:
        remedy = "the process was started with this value: see what starts it, or a sitecustomize"
    return compare("backend", BACKEND, expected, found, remedy)


def _prove_nothing_late(told: "Mapping[str, Any]") -> Proof:
    """A change that comes too late has no effect, or is an INTERNAL ASSERT at CUDA's start."""
    load, cuda = told["load"], told.get("cuda")
    last = told.get("exit") or cuda or load
    changes = [(CONF, load["conf"], last["conf"], "torch was loaded")]
    if cuda:
        changes.append((VARIABLE, cuda["visible"], last["visible"], "CUDA was started"))
    late = [
        f"{name}={after} set after {when} (it was {before})"
        for name, before, after, when in changes
        if before != after
    ]
    if last.get("backend", load["backend"]) != load["backend"]:
        late.append(f"the allocator became {last['backend']} after torch was loaded")
    if not late and "exit" not in told:
        return Proof("late", LATE, "not provable", "no late change", NO_WORD)
    remedy = (
        "give it with -e, or set it before the program imports torch; a plugged-in allocator replaces torch's"
    )
    return compare("late", LATE, "no late change", "; ".join(late) or "no late change", remedy)


def _prove_memory(subject: "Subject", told: "Mapping[str, Any]") -> Proof:
    expected = _KINDS[subject.allocator]
    if "cuda" not in told:
        return Proof("memory", MEMORY, "not provable", expected, "the program started no CUDA")
    memory = told.get("exit", {}).get("memory")
    if memory is None:
        return Proof("memory", MEMORY, "not provable", expected, NO_WORD)
    if memory and not memory["reserved"]:
        return Proof("memory", MEMORY, "not provable", expected, "the program allocated nothing on a GPU")
    remedy = "see the checks backend and late"
    return compare("memory", MEMORY, expected, _kind(memory), remedy)


def _kind(memory: "Mapping[str, Any]") -> str:
    if not memory:
        return "no statistics: a plugged-in allocator"
    if not memory["allocations"]:
        return _KINDS["async"]
    return _KINDS["expandable" if memory.get("expandable") else "native"]


def _prove_cap(subject: "Subject", told: "Mapping[str, Any]") -> Proof:
    expected = f"TORCH_POOL_MEMORY={subject.memory}"
    if subject.environ.get(HOOK) == "0":
        # The self-test turns the hook on, for its own report.
        found = f"{HOOK}=0 turns off the hook that applies it"
        return Proof("cap", CAP, "disproved", expected, found, f"unset {HOOK}")
    if "cuda" not in told:
        return Proof("cap", CAP, "not provable", expected, "the program started no CUDA")
    cap = told["cuda"].get("cap")
    if cap is None:
        return Proof("cap", CAP, "disproved", expected, "no cap", "see the line of torch-pool on stderr")
    return Proof("cap", CAP, "proved", expected, f"{cap['share']:.4g} of cuda:{cap['device']}")


def _writable() -> str | None:
    """Where tempfile finds nothing: with a read-only root, shared memory is what is left."""
    try:
        return tempfile.gettempdir()
    except FileNotFoundError:
        return SHM


def _read(directory: str) -> "list[Mapping[str, Any]]":
    told = []
    for name in sorted(os.listdir(directory)):
        if name.endswith(".json"):
            with open(os.path.join(directory, name), encoding="utf-8") as file:
                told.append(json.load(file))
    return told
