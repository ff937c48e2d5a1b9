"""What each key of a profile may hold. profiles/profile.schema.json tells editors the same; this decides."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch_pool.profile import Devices, names_twice
from torch_pool.refusal import Refusal
from torch_pool.size import is_memory_cap, size_bytes
from torch_pool.strict_yaml import Entry
from torch_pool.suggestion import suggest

BACKENDS = ("cudaMallocAsync", "native")
SWITCHES = (
    "expandable_segments",
    "graph_capture_record_stream_reuse",
    "pinned_free_catch_all",
    "pinned_use_background_threads",
    "pinned_use_cuda_host_register",
    "release_lock_on_cudamalloc",
    "throw_on_cudamalloc_oom",
)
NUMBERS = (
    "garbage_collection_threshold",
    "large_segment_size_mb",
    "max_non_split_rounding_mb",
    "max_split_size_mb",
    "per_process_memory_fraction",
    "pinned_max_cached_size_mb",
    "pinned_max_round_threshold_mb",
    "pinned_num_register_threads",
    "pinned_reserve_segment_size_mb",
)
"""The allocator options of torch 2.0 to 2.14. Which torch takes which is judged by torch_pool.conf."""
ROUNDUP = "roundup_power2_divisions"
ALLOCATOR_KEYS = ("backend", *SWITCHES, *NUMBERS, ROUNDUP)

FALLBACKS = ("expandable", "native", "none")
CHOICES = ("first", "most-free")
GPU_POLICIES = ("required", "wanted", "none")
INCOMPATIBLE = {
    "auto-batch-size": "out-of-memory errors lack the text that automatic batch-size finders look for",
    "cuda-ipc": "CUDA tensors cannot be shared between processes",
    "cudagraph-trees": "torch.compile with reduce-overhead or max-autotune fails; its default mode works",
    "memory-snapshot": "memory snapshots and memory history fail",
    "mempool": "torch.cuda.MemPool fails",
}
"""What the async allocator of torch 2.6 cannot do (c10/cuda/CUDAMallocAsyncAllocator.cpp)."""

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DEVICE = re.compile(r"(0|[1-9][0-9]*)|(GPU|MIG)-[0-9A-Za-z/-]+")
_ROUNDUP = re.compile(r"[0-9]+|\[[0-9>]+:[0-9]+(,[0-9>]+:[0-9]+)*,?\]")
_NOT_IN_ENV = {
    "PYTORCH_CUDA_ALLOC_CONF": "write it as 'allocator'",
    "PYTORCH_ALLOC_CONF": "write it as 'allocator'",
    "CUDA_VISIBLE_DEVICES": "write it as 'devices'",
    "CUDA_DEVICE_ORDER": "the launch sets it together with the devices it picks",
    "HOME": "the launch finds one that can be written; the user may set it",
    "PATH": "a profile does not change which programs are found",
    "LD_LIBRARY_PATH": "a profile does not change which libraries are found",
    "LD_PRELOAD": "a profile does not change which libraries are found",
}


def is_profile_name(text: str) -> bool:
    """Whether the text can name a profile: lower case, digits, single hyphens. Never a path."""
    return _NAME.fullmatch(text) is not None


def refuse_unknown(entries: Mapping[str, Entry], known: Iterable[str], what: str) -> None:
    """Raise Refusal for the first key that is not known, with the nearest one that is."""
    names = tuple(known)
    for key, entry in entries.items():
        if key not in names:
            raise Refusal(f"{entry.place}: {key!r} is not {what}; {suggest(key, names)}")


def _read_text(entry: Entry) -> str:
    if isinstance(entry.value, str) and entry.value.strip() and "\n" not in entry.value.strip():
        return entry.value.strip()
    raise _wrong(entry, "one line of text")


def _read_name(entry: Entry) -> str:
    if isinstance(entry.value, str) and is_profile_name(entry.value):
        return entry.value
    raise _wrong(entry, "the name of a profile, such as base")


def _read_allocator(entry: Entry) -> dict[str, str]:
    if not isinstance(entry.value, dict) or not entry.value:
        raise _wrong(entry, "a mapping such as {backend: cudaMallocAsync}")
    refuse_unknown(entry.value, ALLOCATOR_KEYS, "an allocator option")
    options = {option: _read_option(option, value) for option, value in entry.value.items()}
    # torch 2.6 fixes the backend when it is loaded, before it reads any other option.
    return {"backend": options.pop("backend"), **options} if "backend" in options else options


def _read_option(option: str, entry: Entry) -> str:
    if option in SWITCHES:
        if isinstance(entry.value, bool):
            return str(entry.value)
        raise _wrong(entry, "true or false")
    if option in NUMBERS:
        if isinstance(entry.value, (int, float)) and not isinstance(entry.value, bool):
            return entry.text
        raise _wrong(entry, "a number")
    if option == "backend":
        return _one_of(BACKENDS)(entry)
    if _ROUNDUP.fullmatch(entry.text):
        return entry.text
    raise _wrong(entry, 'a number, or "[256:1,512:2,>:4]" in quotes')


def _read_devices(entry: Entry) -> Devices:
    if entry.value == "all":
        return Devices()
    if isinstance(entry.value, list) and entry.value:
        listed = tuple(_read_device(item) for item in entry.value)
        if names_twice(listed):
            raise _wrong(entry, "each device once")
        return Devices(listed=listed)
    if isinstance(entry.value, dict) and "count" in entry.value:
        refuse_unknown(entry.value, ("count", "choose"), "a key of 'devices'")
        choose = entry.value.get("choose")
        return Devices(_read_count(entry.value["count"]), _one_of(CHOICES)(choose) if choose else "first")
    if isinstance(entry.value, int) and not isinstance(entry.value, bool):
        # 0 could be the first GPU or no GPU at all.
        raise _wrong(
            entry,
            f"{{count: {entry.value or 1}}} for a number of GPUs, or [{entry.value}] for GPU {entry.value}",
        )
    raise _wrong(entry, "all, {count: 1, choose: most-free}, or a list such as [0, 1]")


def _read_count(entry: Entry) -> int:
    if isinstance(entry.value, int) and not isinstance(entry.value, bool) and entry.value > 0:
        return entry.value
    raise _wrong(entry, "a number of GPUs, at least 1")


def _read_device(entry: Entry) -> str:
    if isinstance(entry.value, (int, str)) and _DEVICE.fullmatch(entry.text):
        return entry.text
    raise _wrong(entry, "an index such as 0, or a UUID such as GPU-8a56a4bc")


def _read_memory(entry: Entry) -> str | None:
    if entry.value is None or is_memory_cap(entry.text):
        return None if entry.value is None else entry.text
    raise _wrong(entry, "null, a fraction between 0 and 1 such as 0.5, or a size such as 20GiB")


def _read_env(entry: Entry) -> dict[str, str]:
    if not isinstance(entry.value, dict):
        raise _wrong(entry, "a mapping of variables, {} for none")
    return {name: _read_variable(name, value) for name, value in entry.value.items()}


def _read_variable(name: str, entry: Entry) -> str:
    if not _VARIABLE.fullmatch(name):
        raise Refusal(f"{entry.place}: {name!r} is not a variable name; use letters, digits and underscores")
    if name.startswith("TORCH_POOL_"):
        raise Refusal(f"{entry.place}: {name} is for the user of the image, a profile cannot set it")
    if name in _NOT_IN_ENV:
        raise Refusal(f"{entry.place}: {name} does not belong in 'env'; {_NOT_IN_ENV[name]}")
    is_number = isinstance(entry.value, int) and not isinstance(entry.value, bool)
    if is_number or (isinstance(entry.value, str) and "\0" not in entry.value):
        return entry.text
    raise _wrong(entry, f'text in quotes, such as "{entry.text if entry.value is not None else ""}"')


def _read_shm(entry: Entry) -> int | None:
    size = size_bytes(entry.text)
    if entry.value is None or size:
        return size
    raise _wrong(entry, "null, or a size such as 1GiB")


def _read_incompatible(entry: Entry) -> tuple[str, ...]:
    if not isinstance(entry.value, list):
        raise _wrong(entry, "a list, [] for none")
    return tuple(_one_of(tuple(INCOMPATIBLE))(item) for item in entry.value)


def _one_of(words: tuple[str, ...]) -> Callable[[Entry], str]:
    def read(entry: Entry) -> str:
        if entry.value in words:
            return str(entry.value)
        raise Refusal(
            f"{entry.place}: {entry.text!r} is not one of {', '.join(words)}{_near(entry.text, words)}"
        )

    return read


def _near(text: str, words: tuple[str, ...]) -> str:
    hint = suggest(text, words)
    return f"; {hint}" if hint.startswith("did") else ""


def _wrong(entry: Entry, expected: str) -> Refusal:
    return Refusal(f"{entry.place}: found {entry.text!r}, expected {expected}")


READERS: dict[str, Callable[[Entry], Any]] = {
    "summary": _read_text,
    "extends": _read_name,
    "allocator": _read_allocator,
    "fallback": _one_of(FALLBACKS),
    "devices": _read_devices,
    "memory": _read_memory,
    "gpu": _one_of(GPU_POLICIES),
    "env": _read_env,
    "shm": _read_shm,
    "incompatible": _read_incompatible,
    "evidence": _read_text,
}
"""Every key of a profile and how its value is read."""
