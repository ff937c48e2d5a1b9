"""What the torch in this image really makes of confs: the oracle for `expected_outcome` in tests/entrypoint.

Reads a JSON list of confs on stdin and prints one JSON object a line with the names of
tests/data/alloc_conf_2.6.0.json. Needs torch (written for 2.6.0) and the standard library, no GPU:

    python real_parser.py < confs.json

torch reads the variable twice. Its first parser runs when libc10_cuda.so is loaded and only looks for the
backend: each conf gets a fork that loads nothing but that library, and the two allocators are told apart by
their classes. The second parser runs later, in a fork of a process that has torch and the backend of the
conf: `_set_allocator_settings` reads the variable first, and then the conf it is given, which is the same.
`outcome` is "ok", "error", "crash" (the process died) or "unseen".

What it cannot see. Without a driver an async conf ends in torch's driver check: "unseen". The settings come
from a memory snapshot, which lacks `max_non_split_rounding_size` and `pinned_use_background_threads`; where
the snapshot is refused (async), there are none. Compare only the names that are there.
"""

import ctypes
import importlib.util
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

CONF = "PYTORCH_CUDA_ALLOC_CONF"
BACKENDS = ("native", "cudaMallocAsync")
# The std::atomic<CUDAAllocator*> c10::cuda::CUDACachingAllocator::allocator.
ALLOCATOR = "_ZN3c104cuda20CUDACachingAllocator9allocatorE"
NO_DRIVER = ("driver version is insufficient", "requires CUDA runtime", "Found no NVIDIA driver")
SNAPSHOT_SETTINGS = (
    "max_split_size",
    "garbage_collection_threshold",
    "expandable_segments",
    "release_lock_on_cudamalloc",
    "pinned_use_cuda_host_register",
    "pinned_num_register_threads",
)


def main():
    confs = json.load(sys.stdin)
    if sys.argv[1:] == ["--parse"]:
        json.dump(parse_in_forks(confs), sys.stdout)
        return
    package = Path(importlib.util.find_spec("torch").origin).parent
    library = str(package / "lib" / "libc10_cuda.so")
    backends = {load_in_fork(f"backend:{name}", library): name for name in BACKENDS}
    loaded = {conf: backends[load_in_fork(conf, library)] for conf in confs}
    parsed = {}
    for name in BACKENDS:
        parsed |= parse([conf for conf in confs if loaded[conf] == name], name)
    for conf in confs:
        outcome = {"conf": conf, "load_backend": loaded[conf]} | parsed[conf]
        sys.stdout.write(json.dumps(outcome) + "\n")


def load_in_fork(conf, library):
    """What the library makes of the conf when it is loaded, as a number that differs between backends."""
    return in_fork(conf, lambda: class_of_allocator(ctypes.CDLL(library)))


def class_of_allocator(library):
    """Where the table of the chosen allocator's class lies in the library, which knows one class for each."""
    variable = ctypes.c_void_p.in_dll(library, ALLOCATOR)
    table = ctypes.cast(variable.value, ctypes.POINTER(ctypes.c_void_p))[0]
    return table - ctypes.addressof(variable)


def parse(confs, backend):
    """The outcome of the second parser by conf, in a process that has loaded the backend."""
    environ = os.environ | {CONF: f"backend:{backend}"}
    command = [sys.executable, __file__, "--parse"]
    done = subprocess.run(
        command, env=environ, input=json.dumps(confs), capture_output=True, text=True, check=True, timeout=300
    )
    return dict(zip(confs, json.loads(done.stdout), strict=True))


def parse_in_forks(confs):
    import torch  # noqa: PLC0415 - only this process and its forks have it

    return [in_fork(conf, lambda conf=conf: parse_for_real(torch, conf)) for conf in confs]


def in_fork(conf, question):
    """The answer of a process that starts with the conf in its environment."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.environ[CONF] = conf
        os.write(writer, json.dumps(question()).encode())
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as file:  # noqa: PTH123 - a descriptor
        answer = file.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return json.loads(answer) if answer else {"outcome": "crash", "message": f"status {status}"}


def parse_for_real(torch, conf):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            torch.cuda.memory._set_allocator_settings(conf)
        except (RuntimeError, ValueError, IndexError) as error:
            unseen = any(words in str(error) for words in NO_DRIVER)
            return {"outcome": "unseen" if unseen else "error", "message": str(error).rstrip()}
    warns = any("ignores" in str(warning.message) for warning in caught)
    return {"outcome": "ok", "warns": warns} | snapshot_settings(torch)


def snapshot_settings(torch):
    try:
        settings = torch._C._cuda_memorySnapshot()["allocator_settings"]
    except (RuntimeError, AttributeError, KeyError):
        return {}
    found = {name: settings[name] for name in SNAPSHOT_SETTINGS if name in settings}
    if "max_split_size" in found:
        found["max_split_size"] %= 1 << 64  # torch hands out its size_t as a signed number
    if "roundup_power2_divisions" in settings:
        found["roundup_power2_divisions"] = list(settings["roundup_power2_divisions"].values())
    return found


if __name__ == "__main__":
    main()
