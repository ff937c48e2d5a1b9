"""The in-process hook: what torch-pool does inside a program of the user's, and only where that is asked for.

`torch-pool.pth` beside this file starts it when TORCH_POOL_HOOK=1 or TORCH_POOL_MEMORY is set. It waits for
the program to import torch, and for torch to start CUDA; it does neither itself, imports nothing but what
Python has loaded anyway, and never raises. At CUDA's start it applies the memory cap. An exception that ends
the program and is well known gets one line on stderr with its meaning; the exception is untouched. With
TORCH_POOL_HOOK_REPORT=DIRECTORY (the self-test's) it writes down what torch really used, one file a process.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType, TracebackType
    from typing import Any

CONF = "PYTORCH_CUDA_ALLOC_CONF"
DEVICES = "CUDA_VISIBLE_DEVICES"
MEMORY = "TORCH_POOL_MEMORY"
REPORT = "TORCH_POOL_HOOK_REPORT"
FORMAT = 1
"""1: pid, argv, start, load, cuda and exit; the last three are absent where the program did not get there."""

_UNIT_BYTES = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_OTHER = "-e TORCH_POOL_ALLOCATOR=expandable"
_LATE = "set PYTORCH_CUDA_ALLOC_CONF with -e, not after import torch, and without blanks"
MEANINGS = (
    (
        "does not yet support checkPoolLiveAllocations",
        f"torch.compile with CUDA graphs needs the native allocator: {_OTHER}",
    ),
    (
        "does not yet support getCheckpointState",
        f"torch.compile with CUDA graphs needs the native allocator: {_OTHER}",
    ),
    (
        "does not yet support recordHistory",
        f"memory history and CUDA-graph trees need the native allocator: {_OTHER}",
    ),
    (
        "does not yet support shareIpcHandle",
        "CUDA tensors cannot be shared between processes under async: -e TORCH_POOL_ALLOCATOR=native",
    ),
    (
        "does not yet support getIpcDevPtr",
        "CUDA tensors cannot be shared between processes under async: -e TORCH_POOL_ALLOCATOR=native",
    ),
    ("does not yet support ensureExistsAndIncrefPool", f"MemPool needs the native allocator: {_OTHER}"),
    ("does not yet support createOrIncrefPool", f"MemPool needs the native allocator: {_OTHER}"),
    ("cudaMallocAsync does not yet support", f"the async allocator of this torch lacks it: {_OTHER}"),
    ("snapshot with backend:cudaMallocAsync", f"memory snapshots need the native allocator: {_OTHER}"),
    (
        "parsed at runtime != allocator backend parsed at load time",
        f"the conf changed after torch was loaded; {_LATE}",
    ),
    ("get()->name() INTERNAL ASSERT FAILED", f"the conf changed after torch was loaded; {_LATE}"),
    (
        "Unrecognized CachingAllocator option",
        "PYTORCH_CUDA_ALLOC_CONF is wrong: torch-pool check CONF says where",
    ),
    (
        "pidfd_getfd",
        "CUDA tensors shared under expandable need --cap-add SYS_PTRACE, or -e TORCH_POOL_ALLOCATOR=native",
    ),
    (
        "NVML_SUCCESS == r INTERNAL ASSERT FAILED",
        "the GPU is out of memory, and NVML cannot tell how much there is (MIG, Jetson): use less",
    ),
)
"""A part of torch's words, what it means, and what to do; the first that fits counts."""
_BAD_NUMBERS = ("stoi", "stod", "stoul", "stoull")
_BAD_NUMBER = "a number in PYTORCH_CUDA_ALLOC_CONF is none or out of range: torch-pool check CONF says which"
_ASYNC_FULL = f"the GPU is out of memory; finders of a batch size do not know this text of async: {_OTHER}"


def start() -> None:
    """Wait for torch. A second call (site folders can be listed twice) does nothing."""
    if os.environ.get("TORCH_POOL_HOOK") == "0" or any(isinstance(f, TorchFinder) for f in sys.meta_path):
        return
    sys.meta_path.insert(0, TorchFinder({"start": _settings()}))
    sys.excepthook = _explaining(sys.excepthook)


class TorchFinder:
    """Finds torch as Python would, to be told when it has been loaded. `told` is the report so far.

    Programs look for torch before they import it (importlib.util.find_spec): finding it once is not the end.
    """

    def __init__(self, told: "dict[str, Any]") -> None:
        self.told = told

    def find_spec(
        self, name: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None
    ) -> "ModuleSpec | None":
        """The protocol of sys.meta_path."""
        if name != "torch" or "load" in self.told:
            return None
        # Python itself passes over finders of the old protocol.
        finds = (getattr(finder, "find_spec", None) for finder in sys.meta_path if finder is not self)
        specs = (find(name, path, target) for find in finds if find)
        spec = next((found for found in specs if found), None)
        if spec and spec.loader:
            try:
                _follow(spec.loader, self.told)
            except AttributeError as error:
                _say(f"the in-process hook cannot follow this torch ({error}): no memory cap, no report")
        return spec


def meaning(error: BaseException) -> str | None:
    """What a well-known error, or one that led to it, means, and what to do; None for any other."""
    seen: BaseException | None = error
    for _ in range(8):
        if seen is None:
            return None
        text = str(seen)
        found = next((told for words, told in MEANINGS if words in text), None)
        # Any program may say so, and only with torch is it about the conf.
        if found or (text.strip() in _BAD_NUMBERS and "torch" in sys.modules):
            return found or _BAD_NUMBER
        if type(seen).__name__ == "OutOfMemoryError" and text.startswith("Allocation on device"):
            return _ASYNC_FULL
        seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)
    return None


def apply_cap(torch: "Any", memory: str) -> dict[str, object]:
    """Cap this process's use of its device; says which device, what share, or why not.

    One device only, because to cap a device creates a context on it: that of this rank under torchrun and the
    like (LOCAL_RANK), which a program is about to choose, else the current one.
    """
    count = torch.cuda.device_count()
    rank = os.environ.get("LOCAL_RANK", "")
    is_rank = rank.isdigit() and int(rank) < count
    ordinal = int(rank) if is_rank else torch.cuda.current_device()
    share = _share(memory, torch.cuda.get_device_properties(ordinal).total_memory)
    # The context manager goes back without creating a context on the device before.
    with torch.cuda.device(ordinal):
        torch.cuda.set_per_process_memory_fraction(share, ordinal)
    if count > 1 and not is_rank:
        _say(f"{MEMORY}={memory} caps cuda:{ordinal} only, of {count} devices; give each process one device")
    return {"device": ordinal, "share": share}


def _share(memory: str, total_bytes: int) -> float:
    unit = _UNIT_BYTES.get(memory[-3:])
    return float(memory) if unit is None else min(1.0, int(memory[:-3]) * unit / total_bytes)


def _follow(loader: "Any", told: "dict[str, Any]") -> None:
    """Be told when this loader has loaded torch. The instance is patched: its class and methods stay."""
    load = loader.exec_module

    def exec_module(module: "Any") -> None:
        load(module)
        try:
            _loaded(module, told)
        except Exception as error:  # noqa: BLE001 - a fault of ours must not become the program's
            _say(f"the in-process hook failed when torch was loaded: {type(error).__name__}: {error}")

    loader.exec_module = exec_module


def _loaded(torch: "Any", told: "dict[str, Any]") -> None:
    import threading  # noqa: PLC0415 - torch has loaded it

    threading.excepthook = _explaining_in_thread(threading.excepthook)
    file = getattr(torch, "__file__", None)
    told["load"] = {**_settings(), "torch": torch.__version__, "file": file, "backend": _backend(torch)}
    _write(told)
    if told["load"]["backend"] is None:
        return
    # Runs when CUDA starts, in the thread that starts it; torch's own modules use it for their seeds.
    torch.cuda._lazy_call(lambda: _started(torch, told))  # noqa: SLF001 - there is no public way
    if REPORT in os.environ:
        import atexit  # noqa: PLC0415

        atexit.register(_ended, torch, told)


def _started(torch: "Any", told: "dict[str, Any]") -> None:
    """CUDA has just been started by the program."""
    told["cuda"] = {**_settings(), "devices": torch.cuda.device_count()}
    memory = os.environ.get(MEMORY)
    try:
        if memory:
            told["cuda"]["cap"] = apply_cap(torch, memory)
    except Exception as error:  # noqa: BLE001 - the program goes on without a cap, and says so
        _say(f"{MEMORY}={memory} is not applied: {type(error).__name__}: {error}")
    _write(told)


def _ended(torch: "Any", told: "dict[str, Any]") -> None:
    """What the program's torch has used, read where CUDA was started and nowhere else."""
    try:
        told["exit"] = {**_settings(), "backend": _backend(torch)}
        if torch.cuda.is_initialized():
            told["exit"]["memory"] = _statistics(torch, told["exit"]["backend"])
    except Exception as error:  # noqa: BLE001 - a report with a hole is worth more than none
        told["exit"]["error"] = f"{type(error).__name__}: {error}"
    _write(told)


def _statistics(torch: "Any", backend: str) -> dict[str, object]:
    """Peaks over all visible devices; none of this is refused by the backend that it is asked of."""
    if backend not in ("native", "cudaMallocAsync"):
        return {}
    kept = [torch.cuda.memory_stats(ordinal) for ordinal in range(torch.cuda.device_count())]
    found: dict[str, object] = {
        "reserved": max(statistics.get("reserved_bytes.all.peak", 0) for statistics in kept),
        "allocations": max(statistics.get("allocation.all.peak", 0) for statistics in kept),
    }
    if backend == "native":
        found["expandable"] = any(s.get("is_expandable") for s in torch.cuda.memory_snapshot())
    return found


def _backend(torch: "Any") -> str | None:
    return torch.cuda.get_allocator_backend() if torch.version.cuda else None


def _settings() -> dict[str, str | None]:
    return {"conf": os.environ.get(CONF), "visible": os.environ.get(DEVICES)}


def _write(told: "dict[str, Any]") -> None:
    directory = os.environ.get(REPORT)
    if not directory:
        return
    import json  # noqa: PLC0415 - only a report needs it

    path = f"{directory}/{os.getpid()}.json"
    try:
        with open(f"{path}.part", "w", encoding="utf-8") as file:
            json.dump({"format": FORMAT, "pid": os.getpid(), "argv": sys.argv, **told}, file)
        os.replace(f"{path}.part", path)
    except OSError as error:
        _say(f"{REPORT}={directory} cannot be written: {error.strerror}")


def _explaining(before: "Callable[..., Any]") -> "Callable[..., Any]":
    def excepthook(kind: type[BaseException], error: BaseException, trace: "TracebackType | None") -> None:
        before(kind, error, trace)
        _explain(error)

    return excepthook


def _explaining_in_thread(before: "Callable[..., Any]") -> "Callable[..., Any]":
    def excepthook(arguments: "Any") -> None:
        before(arguments)
        if arguments.exc_value is not None:
            _explain(arguments.exc_value)

    return excepthook


def _explain(error: BaseException) -> None:
    try:
        told = meaning(error)
    except Exception:  # noqa: BLE001 - an error that cannot be told as text has its traceback
        return
    if told:
        _say(told)


def _say(message: str) -> None:
    """One line on stderr, which may be closed."""
    try:
        os.write(2, f"torch-pool: {message}\n".encode(errors="surrogateescape"))
    except OSError:
        return
