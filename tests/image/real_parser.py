"""What the torch in this image really makes of confs: the oracle for `expected_outcome` in tests/entrypoint.

Reads a JSON list of confs on stdin and prints one JSON object a line with the names of
tests/data/alloc_conf_2.6.0.json. Needs torch (written for 2.6.0) and the standard library, no GPU:

    python real_parser.py < confs.json

Each conf gets a fresh process: torch reads the variable once. The child asks for the backend and then forces
the full parse with `_set_allocator_settings`: it reads the variable first, and then the conf it is given,
which is the same one. `outcome` is "ok", "error", "crash" (the process died) or "unseen".

What it cannot see. Without a driver an async conf ends in torch's driver check: "unseen". The settings come
from a memory snapshot, which lacks `max_non_split_rounding_size` and `pinned_use_background_threads`; where
the snapshot is refused (async), there are none. Compare only the names that are there.
"""

import json
import os
import subprocess
import sys
import warnings

TIME_LIMIT_SECONDS = 120
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
    if sys.argv[1:] == ["--one"]:
        show(parse_for_real(os.environ["PYTORCH_CUDA_ALLOC_CONF"]))
        return
    for conf in json.load(sys.stdin):
        show({"conf": conf} | ask_a_child(conf))


def show(outcome):
    sys.stdout.write(json.dumps(outcome) + "\n")
    sys.stdout.flush()


def ask_a_child(conf):
    environ = os.environ | {"PYTORCH_CUDA_ALLOC_CONF": conf}
    command = [sys.executable, __file__, "--one"]
    try:
        child = subprocess.run(
            command, env=environ, capture_output=True, text=True, check=False, timeout=TIME_LIMIT_SECONDS
        )
    except (subprocess.TimeoutExpired, ValueError) as error:
        return {"outcome": "unseen", "message": str(error)}
    try:
        return json.loads(child.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        return {"outcome": "crash", "message": f"status {child.returncode}: {child.stderr[-300:]}"}


def parse_for_real(conf):
    import torch  # noqa: PLC0415 - the parent must not load it

    seen = {"load_backend": torch.cuda.get_allocator_backend()}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            torch.cuda.memory._set_allocator_settings(conf)
        except (RuntimeError, ValueError) as error:
            unseen = any(words in str(error) for words in NO_DRIVER)
            return seen | {"outcome": "unseen" if unseen else "error", "message": str(error).rstrip()}
    warns = any("ignores" in str(warning.message) for warning in caught)
    return seen | {"outcome": "ok", "warns": warns} | snapshot_settings(torch)


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
