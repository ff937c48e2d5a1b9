"""CUDA_VISIBLE_DEVICES by CUDA's own rules: what the driver makes of a value, and where it stops.

Sources: the answers of driver 580.159 (recorded in tests/data/cuda_visible_devices.json), the CUDA
programming guide ("environment variables"), and the MIG user guide.
"""

from torch_pool.finding import Finding
from torch_pool.record import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from torch_pool.nvml import Gpu, Mig

VARIABLE = "CUDA_VISIBLE_DEVICES"
ORDER = "CUDA_DEVICE_ORDER"
PCI = "PCI_BUS_ID"
_REFUSES = "and CUDA then refuses to start (error 101)"
_DIGITS = "0123456789"
_ULONG_MAX = 2**64 - 1
_HEXADECIMAL = frozenset("0123456789abcdef")


class Visible(NamedTuple):
    """What CUDA makes of a value: `seen` are the items it takes, `why_not_all` says what stopped it."""

    asked: tuple[str, ...]
    seen: tuple[str, ...]
    why_not_all: str | None = None
    misread: tuple[str, ...] = ()
    spelled_oddly: tuple[str, ...] = ()


def parse_visible(value: str, gpus: "Sequence[Gpu] | None" = None) -> Visible:
    """Read a value as the driver does. Without `gpus` every well-formed item is taken to exist."""
    items = value.split(",")
    if not items[-1].strip():
        # A comma at the end takes nothing away.
        items.pop()
    asked = tuple(item.strip() for item in items)
    if value.startswith("GPU-"):
        return _read_uuids(asked, items, gpus)
    if value.startswith("MIG-"):
        return _read_migs(asked, items, gpus)
    return _read_indices(asked, items, gpus)


def judge(environ: "Mapping[str, str]", gpus: "Sequence[Gpu] | None") -> tuple[Finding, ...]:
    """What is wrong with the CUDA_VISIBLE_DEVICES that the user gave; nothing if it is unset or good."""
    value = environ.get(VARIABLE)
    if value is None:
        return ()
    visible = parse_visible(value, gpus)
    if not visible.seen:
        return (Finding("warn", "gpu-hidden", VARIABLE, describe_hidden(value, visible) + _hint(environ)),)
    objections = tuple(
        Finding("warn", code, VARIABLE, f"{VARIABLE}={value!r} {text}")
        for code, text in _objections(visible, _hint(environ))
    )
    return (*objections, *_judge_order(value, visible, environ, gpus or ()))


def _judge_order(
    value: str, visible: Visible, environ: "Mapping[str, str]", gpus: "Sequence[Gpu]"
) -> tuple[Finding, ...]:
    if _counts_by_bus(environ, gpus) or not any(item.isdigit() for item in visible.seen):
        return ()
    message = (
        f"{VARIABLE}={value!r} counts the fastest GPU first, and the GPUs of this container differ; "
        f"set {ORDER}={PCI} to count as nvidia-smi does"
    )
    return (Finding("note", "devices-order", ORDER, message),)


def order_gpus(environ: "Mapping[str, str]", gpus: "Sequence[Gpu]") -> "tuple[Gpu | Mig, ...] | None":
    """The devices as CUDA, and so torch, numbers them from 0; NVML's own order ignores the variables.

    None where only CUDA knows: without CUDA_DEVICE_ORDER=PCI_BUS_ID it puts the fastest GPU first.
    """
    value = environ.get(VARIABLE)
    seen = tuple(map(str, range(len(gpus)))) if value is None else parse_visible(value, gpus).seen
    if any(item.isdigit() for item in seen) and not _counts_by_bus(environ, gpus):
        return None
    return tuple(_device(item, gpus) for item in seen)


def _counts_by_bus(environ: "Mapping[str, str]", gpus: "Sequence[Gpu]") -> bool:
    """Whether CUDA's indices are NVML's: among GPUs of one model no order is the faster one."""
    return environ.get(ORDER) == PCI or len({gpu.name for gpu in gpus}) < 2


def _device(item: str, gpus: "Sequence[Gpu]") -> "Gpu | Mig":
    if item.isdigit():
        return gpus[int(item)]
    migs = [mig for gpu in gpus for mig in gpu.mig or () if _is_mig(item, gpu, mig)]
    return migs[0] if migs else next(gpu for gpu in gpus if gpu.uuid == item)


def describe_hidden(value: str, visible: Visible) -> str:
    """The sentence for a value that leaves CUDA without a device."""
    reason = visible.why_not_all or "an empty value means none"
    return f"{VARIABLE}={value!r} hides every GPU from CUDA: {reason}"


def _objections(visible: Visible, hint: str) -> "Iterator[tuple[str, str]]":
    if visible.why_not_all:
        counts = f"asks for {_devices(len(visible.asked))}, CUDA will see {len(visible.seen)}"
        yield "devices-dropped", f"{counts}: {visible.why_not_all}{hint}"
    if visible.misread:
        yield (
            "devices-misread",
            f"is not a list of indices; CUDA reads {', '.join(visible.misread)}; write 0,1",
        )
    if visible.spelled_oddly:
        odd = ", ".join(visible.spelled_oddly)
        advice = "write the UUID as nvidia-smi -L prints it"
        yield (
            "devices-spelling",
            f"suits CUDA, but torch, which compares letters, will not find {odd}; {advice}",
        )


def _hint(environ: "Mapping[str, str]") -> str:
    if not environ[VARIABLE] or environ.get("NVIDIA_VISIBLE_DEVICES") != environ[VARIABLE]:
        return ""
    return "; it repeats NVIDIA_VISIBLE_DEVICES, which counts the host's GPUs: unset it"


def _read_indices(asked: tuple[str, ...], items: list[str], gpus: "Sequence[Gpu] | None") -> Visible:
    seen: list[str] = []
    misread: list[str] = []
    for item in items:
        index = _leading_number(item)
        why = _no_index(item) if index is None else _out_of_range(index, gpus)
        if why or index is None:
            return Visible(asked, tuple(seen), why, tuple(misread))
        if str(index) in seen:
            return Visible(asked, (), f"index {index} is listed twice, {_REFUSES}")
        seen.append(str(index))
        if item.strip().lstrip("+0") != str(index).lstrip("0"):
            misread.append(f"{item.strip()!r} as {index}")
    return Visible(asked, tuple(seen), None, tuple(misread))


def _leading_number(item: str) -> int | None:
    """The number at the start of an item, as C's strtoul takes it; what follows the digits is ignored."""
    text = item.lstrip()
    digits = text.removeprefix("+")
    digits = digits[: len(digits) - len(digits.lstrip(_DIGITS))]
    if not digits:
        return None
    # strtoul stops at the largest unsigned long, of which the driver keeps the lower 32 bits.
    number = _ULONG_MAX if len(digits.lstrip("0")) > 20 else min(int(digits[-20:]), _ULONG_MAX)
    return number & 0xFFFFFFFF


def _no_index(item: str) -> str:
    text = item.strip()
    if not text:
        return "an empty item ends the list"
    if text.startswith("-"):
        return f"{text!r} ends the list"
    if text[0] in "'\"":
        return "the quotes are part of the value, which is what docker --env-file does; leave them out"
    return f"{text!r} is no index, and ends the list"


def _out_of_range(index: int, gpus: "Sequence[Gpu] | None") -> str | None:
    if gpus is None or index < len(gpus):
        return None
    return f"index {index} but only {_gpus(len(gpus))} in this container (numbered from 0)"


def _read_uuids(asked: tuple[str, ...], items: list[str], gpus: "Sequence[Gpu] | None") -> Visible:
    seen: list[str] = []
    odd: list[str] = []
    for item in items:
        found = _find_gpu(item, gpus)
        if found is None:
            why = f"{item!r} is not the UUID of exactly one GPU here, and ends the list"
            return Visible(asked, tuple(seen), why, (), tuple(odd))
        if found in seen:
            return Visible(asked, (), f"{item.strip()} is listed twice, {_REFUSES}")
        seen.append(found)
        if not found.startswith(item):
            odd.append(item.strip())
    return Visible(asked, tuple(seen), None, (), tuple(odd))


def _find_gpu(item: str, gpus: "Sequence[Gpu] | None") -> str | None:
    """The whole UUID that an item means; the driver ignores hyphens, case and what follows a blank."""
    wanted = _hexadecimal(item)
    if not item.startswith("GPU-") or not wanted:
        return None
    known = [gpu.uuid for gpu in gpus or () if gpu.uuid is not None]
    if gpus is None or len(known) < len(gpus):
        return item
    found = [uuid for uuid in known if _hexadecimal(uuid).startswith(wanted)]
    return found[0] if len(found) == 1 else None


def _hexadecimal(uuid: str) -> str:
    digits = uuid.removeprefix("GPU-").rstrip().replace("-", "").lower()
    return digits if _HEXADECIMAL.issuperset(digits) else ""


def _read_migs(asked: tuple[str, ...], items: list[str], gpus: "Sequence[Gpu] | None") -> Visible:
    first = items[0].strip()
    is_named = gpus is not None and all(gpu.uuid is not None for gpu in gpus)
    if is_named and not any(_is_mig(first, gpu, mig) for gpu in gpus or () for mig in gpu.mig or ()):
        return Visible(asked, (), f"{first!r} is no MIG device of this container")
    if len(asked) == 1:
        return Visible(asked, asked)
    why = "a process can use one MIG device, the first; give each process its own container or its own value"
    return Visible(asked, (first,), why)


def _is_mig(item: str, gpu: "Gpu", mig: "Mig") -> bool:
    """Whether an item means it: MIG-<uuid>, or the older MIG-<GPU UUID>/<GPU instance>/<compute instance>."""
    old_form = f"MIG-{gpu.uuid}/{mig.gpu_instance}/{mig.compute_instance}"
    return item == old_form or mig.uuid.startswith(item)


def _devices(count: int) -> str:
    return f"{count} device{'' if count == 1 else 's'}"


def _gpus(count: int) -> str:
    return f"{count} GPU{'' if count == 1 else 's'}"
