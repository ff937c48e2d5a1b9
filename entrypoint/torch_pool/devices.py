"""Which GPUs the command sees: leave that alone, judge what the user said, or pick."""

import os

from torch_pool.finding import Finding
from torch_pool.profile import Devices, names_twice
from torch_pool.record import TYPE_CHECKING, NamedTuple
from torch_pool.refusal import Refusal
from torch_pool.visible import ORDER, PCI, VARIABLE, judge

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch_pool.nvml import Gpu

__all__ = ["ORDER", "Choice", "choose", "find_manager", "parse_spec"]

_SPEC = "TORCH_POOL_DEVICES"

_PROGRAMS = ("torchrun", "accelerate", "deepspeed", "srun", "ray")
_MODULES = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands", "deepspeed.launcher")
_ENVIRONMENTS = {
    "TORCHELASTIC_RUN_ID": "torchrun",
    "ACCELERATE_MIXED_PRECISION": "accelerate",
    "SLURM_JOB_ID": "Slurm",
    "SLURM_PROCID": "Slurm",
    "OMPI_COMM_WORLD_RANK": "Open MPI",
    "RAY_JOB_ID": "Ray",
    "RAY_ADDRESS": "Ray",
    "RAY_CLUSTER_NAME": "Ray",
    "KUBERAY_GEN_RAY_START_CMD": "Ray",
    "LOCAL_RANK": "a process launcher (LOCAL_RANK is set)",
}


class Choice(NamedTuple):
    """What to export, CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER; None leaves the variable alone."""

    visible: str | None
    order: str | None
    reason: str
    findings: tuple[Finding, ...] = ()


class Candidate(NamedTuple):
    """Something that can be picked: a GPU, or a MIG device of one."""

    nvml_index: int | None
    uuid: str | None = None
    free_bytes: int | None = None
    is_mig: bool = False


def parse_spec(text: str, choose: str = "first") -> Devices:
    """Read TORCH_POOL_DEVICES: `all`, a count, or a list of indices or UUIDs. Raises Refusal.

    `choose` is the profile's way to pick, which a bare count does not tell.
    """
    words = tuple(word.strip() for word in text.split(","))
    if words == ("all",):
        return Devices()
    if words == ("0",):
        raise Refusal(f"{_SPEC}=0 could mean no GPU or the first one; write {VARIABLE}= or {VARIABLE}=0")
    if len(words) == 1 and _is_number(words[0]):
        return Devices(pick=int(words[0]), choose=choose)
    if not (all(map(_is_number, words)) or all(word.startswith(("GPU-", "MIG-")) for word in words)):
        raise Refusal(
            f"{_SPEC}={text!r} is not all, a count (1), a list of indices (0,1) or of UUIDs (GPU-8a56a4bc)"
        )
    if names_twice(words):
        raise Refusal(f"{_SPEC}={text!r} names a device twice; name each once")
    return Devices(listed=words)


def choose(
    spec: Devices,
    environ: "Mapping[str, str]",
    gpus: "Sequence[Gpu] | None",
    command: "Sequence[str]",
    lock_dir: str | None = None,
) -> Choice:
    """The devices for the command. `gpus` is NVML's list, () where there is no GPU, None where it is unknown.

    A CUDA_VISIBLE_DEVICES that is set is the user's, and is only judged. With `lock_dir` the picked GPUs are
    held until the command ends: this is the one effect of this module.
    """
    if VARIABLE in environ:
        return Choice(None, None, f"{VARIABLE} is set and used as it is", judge(environ, gpus))
    if not (spec.pick or spec.listed):
        return Choice(None, None, "every GPU of the container stays visible")
    manager = find_manager(environ, command)
    if manager:
        return _left_to(manager)
    if gpus is not None and not gpus:
        return Choice(None, None, "there is no GPU to pick from")
    pick = _pick_blindly(spec) if gpus is None else _pick(spec, gpus)
    if lock_dir:
        pick = _hold(pick, lock_dir)
    return _export(pick, environ, gpus or ())


def hold_earlier(visible: str, gpus: "Sequence[Gpu] | None", lock_dir: str) -> tuple[Finding, ...]:
    """Lock what a launch around this one picked, unless it is held, as it is where that launch locked it."""
    spec = Devices(listed=tuple(visible.split(",")))
    pick = _pick_blindly(spec) if gpus is None else _pick(spec, gpus)
    return tuple(finding for finding in _hold(pick, lock_dir).findings if finding.code != "gpu-held")


def find_manager(environ: "Mapping[str, str]", command: "Sequence[str]") -> str | None:
    """Who gives the processes of this command their GPUs, such as torchrun, Slurm or Ray; None for nobody."""
    in_shell = len(command) > 2 and command[1].startswith("-") and command[1].endswith("c")
    words = command[2].split() if in_shell else list(command)
    script = next((place for place, word in enumerate(words) if word.endswith(".py")), len(words))
    for before, word in zip(["", *words], words[:script], strict=False):
        if os.path.basename(word) in _PROGRAMS:
            return os.path.basename(word)
        if before == "-m" and word.startswith(_MODULES):
            return word
    return next((manager for name, manager in _ENVIRONMENTS.items() if environ.get(name)), None)


class _Pick(NamedTuple):
    """`wanted` candidates are to be taken from `ordered`, the first ones that are free."""

    ordered: tuple[Candidate, ...]
    wanted: int
    reason: str
    findings: tuple[Finding, ...] = ()
    by_uuid: bool = False

    @property
    def taken(self) -> tuple[Candidate, ...]:
        return self.ordered[: self.wanted]


def _left_to(manager: str) -> Choice:
    message = (
        f"the devices asked for are not applied: {manager} gives its processes their GPUs; "
        f"set {VARIABLE} to choose which it can use"
    )
    return Choice(None, None, f"left to {manager}", (Finding("warn", "devices-left-alone", _SPEC, message),))


def _pick_blindly(spec: Devices) -> _Pick:
    """A pick by number alone, for a container in which NVML gives no answer."""
    if spec.listed:
        listed = tuple(Candidate(int(w)) if _is_number(w) else Candidate(None, w) for w in spec.listed)
        reason = "as listed, without a check: NVML gives no list"
        return _Pick(listed, len(listed), reason, (), by_uuid=listed[0].uuid is not None)
    findings = _free_memory_unknown() if spec.choose == "most-free" else ()
    count = spec.pick or 0
    return _Pick(tuple(map(Candidate, range(count))), count, "the first", findings)


def _pick(spec: Devices, gpus: "Sequence[Gpu]") -> _Pick:
    candidates = tuple(candidate for gpu in gpus for candidate in _candidates(gpu))
    lost = _lost(gpus, others=bool(candidates))
    if lost and not candidates:
        return _Pick((), 0, "no GPU answers", lost)
    pick = _pick_listed(spec.listed, candidates) if spec.listed else _pick_count(spec, candidates)
    return pick._replace(findings=(*lost, *pick.findings))


def _lost(gpus: "Sequence[Gpu]", *, others: bool) -> tuple[Finding, ...]:
    """Which GPUs NVML cannot use and why; a missing GPU, which the policy grades, only without `others`."""
    faults = ", ".join(f"{gpu.nvml_index} ({gpu.fault})" for gpu in gpus if gpu.fault)
    message = f"of the GPUs (numbered from 0) NVML gives up {faults}; have the host reset or replace them"
    return (Finding("warn", "devices-lost" if others else "gpu-lost", _SPEC, message),) if faults else ()


def _candidates(gpu: "Gpu") -> tuple[Candidate, ...]:
    """The GPU itself or, where MIG is on, its MIG devices; nothing of a GPU that is lost."""
    if gpu.fault:
        return ()
    if gpu.mig is None:
        return (Candidate(gpu.nvml_index, gpu.uuid, gpu.free_bytes),)
    return tuple(Candidate(gpu.nvml_index, mig.uuid, mig.free_bytes, is_mig=True) for mig in gpu.mig)


def _pick_listed(listed: tuple[str, ...], candidates: tuple[Candidate, ...]) -> _Pick:
    found = [_find(word, candidates) for word in listed]
    absent = [word for word, named in zip(listed, found, strict=True) if not named]
    if absent:
        there = ", ".join(str(candidate.uuid or candidate.nvml_index) for candidate in candidates)
        message = (
            f"{', '.join(absent)} is not in this container, which has (numbered from 0) {there or 'none'}"
        )
        return _Pick((), 0, "not there", (Finding("refuse", "gpu-absent", _SPEC, message),))
    chosen = tuple(candidate for named in found for candidate in named)
    if len({*chosen}) < len(found) or len(chosen) > len(found):
        message = f"{','.join(listed)} does not name one device each; write more of the UUIDs, each once"
        return _Pick((), 0, "ambiguous", (Finding("refuse", "devices-ambiguous", _SPEC, message),))
    return _Pick(chosen, len(chosen), "as listed", _one_mig(len(chosen), chosen), not _is_number(listed[0]))


def _find(word: str, candidates: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
    """What the word names; a UUID is believed where NVML is silent and none is known."""
    if _is_number(word):
        return tuple(c for c in candidates if c.nvml_index == int(word))[:1]
    if candidates and all(candidate.uuid is None for candidate in candidates):
        return (Candidate(None, word),)
    return tuple(c for c in candidates if c.uuid and c.uuid.lower().startswith(word.lower()))


def _pick_count(spec: Devices, candidates: tuple[Candidate, ...]) -> _Pick:
    asked = spec.pick or 0
    if (
        candidates
        and spec.choose == "most-free"
        and all(candidate.free_bytes is None for candidate in candidates)
    ):
        return _Pick(candidates, min(asked, len(candidates)), "the first", _free_memory_unknown())
    ordered, reason = candidates, "the first"
    if spec.choose == "most-free":
        # Unknown free memory comes last; among equals the order of the GPUs stays.
        ordered = tuple(sorted(candidates, key=lambda c: -1 if c.free_bytes is None else -c.free_bytes - 2))
        reason = "the most free memory"
    whole = tuple(candidate for candidate in ordered if not candidate.is_mig)
    if asked > 1 and len(whole) < len(ordered):
        # A process can use several GPUs or one MIG device.
        ordered = whole or ordered
        wanted = min(asked, len(whole) or 1)
        return _Pick(ordered, wanted, reason, _one_mig(asked, candidates))
    return _Pick(ordered, min(asked, len(ordered)), reason, _too_few(asked, len(ordered)))


def _free_memory_unknown() -> tuple[Finding, ...]:
    message = "NVML tells of no free memory, so the first GPUs are taken; add the driver capability 'utility'"
    return (Finding("warn", "devices-unknown", _SPEC, message),)


def _one_mig(asked: int, candidates: tuple[Candidate, ...]) -> tuple[Finding, ...]:
    if asked < 2 or not any(candidate.is_mig for candidate in candidates):
        return ()
    message = (
        f"{asked} devices are asked for, but a process can use one MIG device; "
        "give each process its own container or its own CUDA_VISIBLE_DEVICES"
    )
    return (Finding("warn", "devices-mig", _SPEC, message),)


def _too_few(asked: int, there: int) -> tuple[Finding, ...]:
    if there >= asked:
        return ()
    message = f"{asked} GPUs are asked for and this container has {there}; pass more to it, or ask for fewer"
    return (Finding("warn", "gpu-too-few", _SPEC, message),)


def _hold(pick: _Pick, lock_dir: str) -> _Pick:
    """The pick without what other containers hold, locked from now on; or nothing, with a refusal."""
    from torch_pool.lock import claim  # noqa: PLC0415 - only with TORCH_POOL_LOCK_DIR

    known = {candidate.uuid: candidate for candidate in pick.ordered if candidate.uuid is not None}
    if len(known) < len(pick.ordered):
        message = "NVML gives no UUIDs to lock by; add the driver capability 'utility'"
        return _not_held(pick, "lock-unknown", message)
    try:
        claimed = claim(lock_dir, tuple(known), pick.wanted)
    except OSError as error:
        reason = error.strerror or error
        return _not_held(pick, "lock-failed", f"TORCH_POOL_LOCK_DIR={lock_dir!r} cannot be used: {reason}")
    if len(claimed) < pick.wanted:
        message = f"{pick.wanted} wanted, fewer are free: others hold the GPUs in {lock_dir}; wait for one"
        return _not_held(pick, "gpu-held", message)
    taken = tuple(known[uuid] for uuid in claimed)
    return pick._replace(ordered=taken, reason=f"{pick.reason}, held in {lock_dir}")


def _not_held(pick: _Pick, code: str, message: str) -> _Pick:
    finding = Finding("refuse", code, "TORCH_POOL_LOCK_DIR", message)
    return _Pick((), 0, "no lock", (*pick.findings, finding))


def _export(pick: _Pick, environ: "Mapping[str, str]", gpus: "Sequence[Gpu]") -> Choice:
    """Indices, which every program can parse; UUIDs where CUDA and NVML may number differently."""
    if not pick.taken:
        return Choice(None, None, pick.reason, pick.findings)
    alike = environ.get(ORDER, PCI) == PCI and all(gpu.mig is None and gpu.fault is None for gpu in gpus)
    uuids = [candidate.uuid for candidate in pick.taken if candidate.uuid is not None]
    if len(uuids) == len(pick.taken) and (pick.by_uuid or not alike):
        return Choice(",".join(uuids), None, pick.reason, pick.findings)
    indices = ",".join(str(candidate.nvml_index) for candidate in pick.taken)
    return Choice(indices, PCI, pick.reason, pick.findings)


def _is_number(word: str) -> bool:
    return word.isascii() and word.isdigit() and len(word) < 5
