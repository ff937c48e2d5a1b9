"""Proofs from the answers of torch: which allocator it loaded, whether it took the conf, where memory lies.

Sources: c10/cuda/CUDACachingAllocator.cpp and CUDAMallocAsyncAllocator.cpp of torch 2.6.0, and what an H200
showed under 2.6.0 and 2.11.0.
"""

import os

from torch_pool.launch import CONF
from torch_pool.proof import Proof, compare
from torch_pool.proof_settings import split_remedy
from torch_pool.record import TYPE_CHECKING
from torch_pool.size import format_size, size_bytes
from torch_pool.visible import VARIABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from torch_pool.interrogation import Answer
    from torch_pool.subject import Subject

TORCH = "the torch that programs here load is the image's own"
BACKEND = "torch chose its allocator by this conf when it was loaded"
START = "nothing changes devices or caching when Python starts"
PARSE = "torch reads the whole conf without an error"
POOLS = "every visible device has the memory pools that cudaMallocAsync needs"
POINTER = "a tensor's memory lies where this allocator puts it"
STATISTICS = "the memory statistics are of the kind that this allocator keeps"
SEGMENTS = "the native allocator's segments are of the asked kind"
RELEASE = "freed memory stays reserved for the next tensor, and empty_cache() gives it back"
DEVICES = "the visible devices are the intended ones"
CAP = "the memory cap is applied"

NO_CHANGE = "no change"
NO_GPU = "torch sees no GPU here"
_ONE_WORD = "set TORCH_POOL_ALLOCATOR=expandable, or native"
_SHARE_TOLERANCE = 0.001


def prove_torch(subject: "Subject", load: "Answer") -> list[Proof]:
    """Which torch it is, and the backend that it loaded by which conf."""
    if load.error:
        remedy = "see why with: python -c 'import torch'"
        return [Proof("torch", TORCH, "disproved", subject.torch, load.error, remedy)]
    values = load.values
    expected = f"{subject.backend} by {_conf(subject.conf)}"
    chosen = f"{values['backend']} by {_conf(values['conf'])}"
    backend = compare("backend", BACKEND, expected, chosen, _backend_remedy(subject, values))
    return [prove_image_torch(subject, values), backend]


def prove_image_torch(subject: "Subject", loaded: "Mapping[str, Any]") -> Proof:
    """By version and file: a copy in front of the image's may well have the same version."""
    version, file = loaded["torch"], loaded["file"]
    expected = f"{subject.torch} in {subject.site_dir or 'any folder'}"
    found = f"{version} in {file}"
    folder = os.path.realpath(os.path.join(subject.site_dir or "", "torch"))
    is_there = subject.site_dir is None or os.path.dirname(os.path.realpath(file or "")) == folder
    if version == subject.torch and is_there:
        return Proof("torch", TORCH, "proved", expected, found)
    remedy = f"another torch lies in front of the image's: take {file} off PYTHONPATH and the directory"
    return Proof("torch", TORCH, "disproved", expected, found, remedy)


def prove_start(subject: "Subject", load: "Answer") -> Proof:
    """What a sitecustomize hides is gone from every process, and no later check can miss it."""
    given = load.values["given"]
    changed = [name for name in given if given[name] != subject.environ.get(name)]
    if not changed:
        return Proof("start", START, "proved", NO_CHANGE, NO_CHANGE)
    expected = ", ".join(f"{name}={subject.environ.get(name, 'unset')}" for name in changed)
    found = ", ".join(f"{name}={'unset' if given[name] is None else given[name]}" for name in changed)
    return Proof("start", START, "disproved", expected, found, f"look into {_at_start(load.values)}")


def _at_start(values: "Mapping[str, Any]") -> str:
    return values["sitecustomize"] or "a .pth file or a usercustomize of this Python"


def prove_parse(subject: "Subject", parse: "Answer", rest: "Answer | None" = None) -> Proof:
    """The full parse.

    Without a driver the async backend's own check ends it; `rest` is then the parse of the other options.
    """
    said, expected = parse.error or (rest.error if rest else None), "no error"
    if said:
        return Proof("parse", PARSE, "disproved", expected, said, _parse_remedy(subject, said))
    if "unseen" in parse.values:
        found = "only the other options, which it takes" if rest else "nothing that torch can parse"
        why = f"{found}, because there is no driver"
        return Proof("parse", PARSE, "not provable", expected, why, "run it where the NVIDIA driver is")
    warned = parse.values.get("warning")
    return Proof("parse", PARSE, "proved", expected, f"no error{f', but: {warned}' if warned else ''}")


def prove_devices(subject: "Subject", devices: "Answer") -> list[Proof]:
    """The devices by UUID, and their memory pools."""
    if devices.error:
        return [failed("devices", DEVICES, "an answer of CUDA", devices.error)]
    seen = devices.values["devices"]
    if not seen and not subject.gpus:
        return [unprovable("devices", DEVICES), unprovable("pools", POOLS)]
    return [_compare_devices(subject, seen), _judge_pools(subject, seen)]


def prove_placement(subject: "Subject", placement: "Answer") -> list[Proof]:
    """Where memory lies, and what the statistics say of it."""
    if placement.error:
        return [failed("pointer", POINTER, _places(subject.allocator)[0], placement.error)]
    if not placement.values["devices"]:
        return [unprovable("pointer", POINTER)]
    proofs = [
        _prove_each("pointer", POINTER, subject, placement, _where),
        _prove_each("statistics", STATISTICS, subject, placement, _kind),
    ]
    # Async has no segments to look at, and refuses the snapshot that would show them.
    if subject.allocator != "async":
        proofs.append(_prove_each("segments", SEGMENTS, subject, placement, _segment))
    return proofs


def prove_release(release: "Answer") -> Proof:
    """From the bytes reserved before and after a piece is taken, freed, and given back."""
    expected = "reserved stays after a free and falls with empty_cache()"
    if release.error:
        return failed("release", RELEASE, expected, release.error)
    if release.values["reserved"] is None:
        return Proof("release", RELEASE, "disproved", expected, "no statistics", _pluggable())
    if not release.values["reserved"]:
        return unprovable("release", RELEASE)
    _, taken, freed, emptied = release.values["reserved"]
    piece = release.values["piece"]
    found = (
        f"{format_size(taken)} with a tensor, {format_size(freed)} without, {format_size(emptied)} emptied"
    )
    if freed < taken:
        remedy = "unset PYTORCH_NO_CUDA_MEMORY_CACHING"
    elif emptied > freed - piece:
        remedy = "something in the program replaces or blocks torch.cuda.empty_cache; see sitecustomize"
    else:
        return Proof("release", RELEASE, "proved", expected, found)
    return Proof("release", RELEASE, "disproved", expected, found, remedy)


def prove_cap(subject: "Subject", load: "Answer", cap: "Answer | None") -> Proof:
    """The share that the in-process hook set at CUDA's start; without the hook there can be none."""
    expected = f"TORCH_POOL_MEMORY={subject.memory}"
    if not load.values["hook"]:
        return Proof("cap", CAP, "disproved", expected, "no hook that applies it", _hook_remedy(subject))
    if cap is None or (not cap.error and cap.values["share"] is None):
        return unprovable("cap", CAP)
    if cap.error:
        return failed("cap", CAP, expected, cap.error)
    share, total = cap.values["share"], cap.values["total_bytes"]
    asked = share_of(subject.memory or "", total)
    counts = "; under async it counts the bytes that tensors ask for" if subject.backend != "native" else ""
    found = f"at most {share:.4g} of {format_size(total)}{counts}" if share <= 1 else "no cap"
    if abs(share - asked) <= _SHARE_TOLERANCE * asked:
        return Proof("cap", CAP, "proved", expected, found)
    remedy = "see the line of torch-pool on stderr when a program starts CUDA"
    return Proof("cap", CAP, "disproved", expected, found, remedy)


def _hook_remedy(subject: "Subject") -> str:
    if subject.environ.get("TORCH_POOL_HOOK") == "0":
        return "unset TORCH_POOL_HOOK=0, which turns off the hook that applies the cap"
    return "put torch-pool.pth and torch_pool_hook.py back into this Python's site packages"


def share_of(memory: str, total_bytes: int) -> float:
    """The share of a device that a cap means; a size above the device's means all of it."""
    cap_bytes = size_bytes(memory)
    return float(memory) if cap_bytes is None else min(1.0, cap_bytes / total_bytes)


def unprovable(name: str, proves: str, why: str = NO_GPU) -> Proof:
    """A check that needs what is not here."""
    return Proof(name, proves, "not provable", "a GPU", why)


def failed(name: str, proves: str, expected: str, error: str) -> Proof:
    """A question that torch answered with an error. A full GPU says nothing of the settings."""
    if error.startswith("OutOfMemoryError"):
        return Proof(name, proves, "not provable", expected, error, "free some memory of the GPU")
    return Proof(name, proves, "disproved", expected, error, explain_failure(error))


def explain_failure(error: str) -> str:
    """What to do about an error of CUDA or torch."""
    if "operation not supported" in error:
        return f"this GPU has no memory pools (or none for this container): {_ONE_WORD}"
    if "crashed" in error or "gave no answer" in error:
        return "run torch-pool doctor, and see the host's dmesg"
    return "run torch-pool doctor"


def _conf(conf: str | None) -> str:
    return "no conf" if conf is None else f"{CONF}={conf}"


def _backend_remedy(subject: "Subject", values: "Mapping[str, Any]") -> str:
    if values["backend"] is None:
        return "this torch is built without CUDA: install the CUDA build, or remove it from PYTHONPATH"
    if values["conf"] != subject.conf:
        changes = f"something changes {CONF} at Python's start, before torch is loaded"
        return f"{changes}: look into {_at_start(values)}"
    if values["backend"] == "pluggable":
        return _pluggable()
    return "the conf was changed while torch was loaded: look into sitecustomize and .pth files"


def _pluggable() -> str:
    return "a CUDAPluggableAllocator is plugged in: remove the call of change_current_allocator"


def _parse_remedy(subject: "Subject", error: str) -> str:
    for finding in subject.findings:
        if finding.code in ("torch-refuses", "literal-quotes", "undefined-behaviour"):
            return split_remedy(finding.message)[1]
    if ("cudaMallocAsync" in error and "load time" in error) or "get()->name()" in error:
        return f"{CONF} was changed after torch was loaded, or an allocator was plugged in: set it before"
    return f"correct {CONF}; torch-pool check CONF explains it"


def _compare_devices(subject: "Subject", seen: "list[dict[str, Any]]") -> Proof:
    found = [device["uuid"] for device in seen]
    shown = ", ".join(f"{d['ordinal']} {d['name']} {d['uuid']}" for d in seen) or "none"
    if subject.gpus is None:
        why = f"{shown}; which ones are intended is unknown without NVML and a fixed order"
        return Proof(
            "devices", DEVICES, "not provable", "a list by NVML", why, "set CUDA_DEVICE_ORDER=PCI_BUS_ID"
        )
    expected = [(gpu.uuid or "").partition("-")[2].replace("-", "") for gpu in subject.gpus]
    remedy = f"see who sets {VARIABLE} (a sitecustomize, a scheduler); torch-pool doctor explains its value"
    if found == expected:
        return Proof("devices", DEVICES, "proved", ", ".join(expected), shown)
    return Proof("devices", DEVICES, "disproved", ", ".join(expected) or "none", shown, remedy)


def _judge_pools(subject: "Subject", seen: "list[dict[str, Any]]") -> Proof:
    if not seen:
        return unprovable("pools", POOLS)
    without = [f"{device['ordinal']} ({device['name']})" for device in seen if not device["pools"]]
    if not without:
        return Proof("pools", POOLS, "proved", "memory pools", "on every visible device")
    found = f"not on device {', '.join(without)}"
    if subject.allocator == "async":
        return Proof("pools", POOLS, "disproved", "memory pools", found, _ONE_WORD)
    return Proof("pools", POOLS, "note", "memory pools", found)


def _prove_each(
    name: str,
    proves: str,
    subject: "Subject",
    placement: "Answer",
    describe: "Callable[[Mapping[str, Any]], str]",
) -> Proof:
    """Equal on every device, or the first device that differs."""
    expected = _places(subject.allocator)[("pointer", "statistics", "segments").index(name)]
    remedy = "torch uses another allocator than the settings say: see the check backend"
    proofs = [
        compare(name, proves, expected, describe(place), f"on device {place['ordinal']}: {remedy}")
        for place in placement.values["devices"]
    ]
    return next((proof for proof in proofs if proof.status == "disproved"), proofs[0])


def _places(allocator: str) -> tuple[str, str, str]:
    """What is to be found of a tensor's memory: its place, the kind of statistics, the kind of segment."""
    return {
        "async": ("the device's default memory pool", "bytes alone", "no segment"),
        "native": ("no memory pool", "bytes and allocations", "a fixed segment"),
        "expandable": ("no memory pool", "bytes and allocations", "an expandable segment"),
    }[allocator]


def _where(place: "Mapping[str, Any]") -> str:
    if place["in_default_pool"]:
        return "the device's default memory pool"
    return "another memory pool" if place["in_pool"] else "no memory pool"


def _kind(place: "Mapping[str, Any]") -> str:
    if "reserved" not in place:
        return "no statistics"
    if not place["reserved"]:
        return "nothing reserved"
    return "bytes and allocations" if place["allocations"] else "bytes alone"


def _segment(place: "Mapping[str, Any]") -> str:
    if not place.get("segment"):
        return "no segment"
    return "an expandable segment" if place["expandable"] else "a fixed segment"
