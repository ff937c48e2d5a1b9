"""Runs inside the image's own Python, in a process of its own, and tells what its torch really does.

It is given to `python -c`, so that it finds the torch that a program in this directory would find, and with
it a sitecustomize or a .pth file. Standard library and torch only; it reads, and judges nothing. The
arguments are a file descriptor and the questions. Each answer is one line of JSON, written before the next
question: torch may crash at any of them. After the first question that fails nothing more is answered,
because torch may crash at its next use after a caught error (seen with 2.6.0 and 2.11.0 at CUDA's start).

Names and numbers of libcuda are those of cuda.h, CUDA 12.4.
"""

import ctypes
import json
import os
import sys
import time
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

CONF = "PYTORCH_CUDA_ALLOC_CONF"
GIVEN = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "PYTORCH_NO_CUDA_MEMORY_CACHING")
"""Read by CUDA or torch beside the conf, and so nothing that may change at Python's start."""
PIECE_BYTES = 256 << 20
_MEMORY_POOLS = 115  # CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED
_POOL_HANDLE = 17  # CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE
NO_DRIVER = ("driver version is insufficient", "requires CUDA runtime", "Found no NVIDIA driver")
"""What the async backend's own check of the driver says, in place of a parse."""
_WITH_STATISTICS = ("native", "cudaMallocAsync")


def answer(descriptor: int, questions: list[str], known: "Mapping[str, Callable[[], Any]]") -> None:
    """Answer until one question fails. A question that returns nothing has been answered well."""
    with os.fdopen(descriptor, "w") as answers:
        for question in questions:
            began = time.monotonic()
            try:
                told = known[question]() or {}
            except Exception as error:  # noqa: BLE001 - whatever torch raises is the answer
                told = {"error": f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"}
            json.dump({"question": question, "seconds": time.monotonic() - began, **told}, answers)
            answers.write("\n")
            answers.flush()
            if "error" in told:
                return


def load() -> dict[str, Any]:
    """What torch chose when it was imported."""
    import torch  # noqa: PLC0415 - its failure to load is an answer

    custom = sys.modules.get("sitecustomize")
    return {
        "torch": torch.__version__,
        "file": torch.__file__,
        "cuda": torch.version.cuda,
        "backend": torch.cuda.get_allocator_backend() if torch.version.cuda else None,
        "conf": os.environ.get(CONF),
        "given": {name: os.environ.get(name) for name in GIVEN},
        "hook": any(type(finder).__name__ == "TorchFinder" for finder in sys.meta_path),
        "sitecustomize": getattr(custom, "__file__", None),
    }


def parse() -> dict[str, Any]:
    """Make torch read the whole conf. Under async nothing in CUDA's start does; this needs no GPU."""
    import torch  # noqa: PLC0415

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            torch.cuda.memory._set_allocator_settings(os.environ.get(CONF) or "")  # noqa: SLF001 - no other way
        except RuntimeError as error:
            if not any(text in str(error) for text in NO_DRIVER):
                raise
            return {"unseen": str(error).partition("\n")[0]}
    ignored = [str(warning.message) for warning in caught if " ignores " in str(warning.message)]
    return {"warning": ignored[0] if ignored else None}


def devices() -> dict[str, Any]:
    """The devices as this process's CUDA numbers them. Creates no context on any of them."""
    import torch  # noqa: PLC0415

    if not torch.cuda.is_available():
        return {"devices": []}
    torch.cuda.init()
    cuda = _libcuda()
    return {"devices": [_device(cuda, ordinal) for ordinal in range(torch.cuda.device_count())]}


def placement() -> dict[str, Any]:
    """Where one small tensor on each device really lies, and what the statistics say of it."""
    import torch  # noqa: PLC0415

    if not torch.cuda.is_available():
        return {"devices": []}
    # The parse that the first pinned allocation of a program causes.
    torch.empty(1, pin_memory=True)
    return {"devices": [_place(torch, ordinal) for ordinal in range(torch.cuda.device_count())]}


def release() -> dict[str, Any]:
    """The bytes reserved before and after a piece of memory is taken, freed and given back."""
    import torch  # noqa: PLC0415

    if not torch.cuda.is_available():
        return {"reserved": []}
    if torch.cuda.get_allocator_backend() not in _WITH_STATISTICS:
        return {"reserved": None}
    reserved = [torch.cuda.memory_reserved()]
    piece = torch.empty(PIECE_BYTES, dtype=torch.uint8, device="cuda")
    reserved.append(torch.cuda.memory_reserved())
    del piece
    torch.cuda.synchronize()
    reserved.append(torch.cuda.memory_reserved())
    torch.cuda.empty_cache()
    reserved.append(torch.cuda.memory_reserved())
    return {"piece": PIECE_BYTES, "reserved": reserved}


def cap() -> dict[str, Any]:
    """The share of its device that this process may use."""
    import torch  # noqa: PLC0415

    if not torch.cuda.is_available():
        return {"share": None}
    # The device that the in-process hook caps.
    rank = os.environ.get("LOCAL_RANK", "")
    is_rank = rank.isdigit() and int(rank) < torch.cuda.device_count()
    ordinal = int(rank) if is_rank else torch.cuda.current_device()
    return {
        "share": torch.cuda.get_per_process_memory_fraction(ordinal),
        "total_bytes": torch.cuda.get_device_properties(ordinal).total_memory,
    }


QUESTIONS = {question.__name__: question for question in (load, parse, devices, placement, release, cap)}


def _libcuda() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def _device(cuda: ctypes.CDLL, ordinal: int) -> dict[str, Any]:
    device, pools = ctypes.c_int(), ctypes.c_int()
    name, uuid = ctypes.create_string_buffer(256), (ctypes.c_ubyte * 16)()
    _call(cuda.cuDeviceGet, ctypes.byref(device), ordinal)
    _call(cuda.cuDeviceGetName, name, len(name), device)
    _call(cuda.cuDeviceGetAttribute, ctypes.byref(pools), _MEMORY_POOLS, device)
    # _v2 gives the UUID of a MIG device where that is what is visible.
    _call(cuda.cuDeviceGetUuid_v2, uuid, device)
    return {
        "ordinal": ordinal,
        "name": name.value.decode(errors="replace"),
        "uuid": bytes(uuid).hex(),
        "pools": bool(pools.value),
    }


def _place(torch: Any, ordinal: int) -> dict[str, Any]:
    backend = torch.cuda.get_allocator_backend()
    tensor = torch.ones(1024, device=f"cuda:{ordinal}")
    address = tensor.data_ptr()
    place = {"ordinal": ordinal, **_pool(address, ordinal)}
    if backend in _WITH_STATISTICS:
        statistics = torch.cuda.memory_stats(ordinal)
        place["reserved"] = statistics["reserved_bytes.all.current"]
        place["allocations"] = statistics["allocation.all.current"]
    # A snapshot is what async does not support.
    if backend == "native":
        found = [s for s in torch.cuda.memory_snapshot() if s["address"] <= address < _end(s)]
        place["segment"] = bool(found)
        place["expandable"] = any(segment.get("is_expandable") for segment in found)
    return place


def _end(segment: dict[str, Any]) -> int:
    return int(segment["address"]) + int(segment["total_size"])


def _pool(address: int, ordinal: int) -> dict[str, Any]:
    """Whether the memory at an address belongs to a pool, and to the device's default one."""
    cuda = _libcuda()
    device, default, handle = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
    _call(cuda.cuDeviceGet, ctypes.byref(device), ordinal)
    _call(cuda.cuDeviceGetDefaultMemPool, ctypes.byref(default), device)
    _call(cuda.cuPointerGetAttribute, ctypes.byref(handle), _POOL_HANDLE, ctypes.c_ulonglong(address))
    return {
        "in_pool": bool(handle.value),
        "in_default_pool": bool(handle.value) and handle.value == default.value,
    }


def _call(function: Any, *arguments: Any) -> None:
    """Raises RuntimeError with CUDA's number."""
    code = function(*arguments)
    if code:
        raise RuntimeError(f"CUDA error {code} from {function.__name__}")


if __name__ == "__main__":
    answer(int(sys.argv[1]), sys.argv[2:], QUESTIONS)
