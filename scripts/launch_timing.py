"""Runs inside an image, given to its Python as text, and prints what launches cost there as one JSON object.

Standard library only. Every round starts each variant once, so that whatever else the machine does strikes
all of them alike. A time is from the start of the process to the moment when the kernel opens the command to
execute it, which inotify tells; of a bare Python to its end.
"""

import ctypes
import json
import os
import select
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

PYTHON = ["/opt/torch-pool/bin/python", "-I", "-S"]
LAUNCH = "/opt/torch-pool/launch.py"
LIBRARY = "/opt/torch-pool/lib"
COMMAND = "/bin/true"
GPU = "/dev/nvidia0"
CONF = "PYTORCH_CUDA_ALLOC_CONF"
WARM_UP = 5
LIMIT_SECONDS = 10
IN_OPEN = 0x20  # linux/inotify.h

BARE = "bare python -I -S -c pass"
SHELL = "exec by sh"
PLAIN = "launch, plain path"

# Becomes what launch.py becomes, but tells of itself in place of exec.
TELL = f"""
import sys
sys.path.insert(0, {LIBRARY!r})
import os
before = {{*sys.modules}}
import baked
from torch_pool import launch
def tell(*_):
    modules = sorted({{*sys.modules}} - before)
    status = open("/proc/self/status").read()
    print(*modules, [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")][0])
    sys.stdout.flush()
    os._exit(0)
os.execve = tell
launch.main([{COMMAND!r}], baked)
"""
BARE_PEAK = "print([l.split()[1] for l in open('/proc/self/status') if l.startswith('VmHWM')][0])"


def main() -> None:
    """Arguments: the number of rounds, and a JSON list of confs to judge."""
    rounds, confs = int(sys.argv[1]), json.loads(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        milliseconds = time_variants(variants(Path(folder), has_gpu=Path(GPU).exists()), rounds)
    *modules, peak_kib = ask(TELL).split()
    report = {
        "milliseconds": milliseconds,
        "imports": modules,
        "peak_kib": {PLAIN: int(peak_kib), BARE: int(ask(BARE_PEAK))},
        "judge_milliseconds": time_judge(confs),
    }
    json.dump(report, sys.stdout)


def variants(folder: Path, *, has_gpu: bool) -> dict[str, Callable[[], float]]:
    """What is compared: the launch with its two rivals, and the paths that have something to decide."""
    profile = folder / "mounted.yaml"
    profile.write_text("summary: Mounted\nextends: infer\nenv: {OMP_NUM_THREADS: '4'}\n")
    # A copy, because nobody else opens that.
    command = str(shutil.copy(COMMAND, folder))
    opened = watch(command)
    launch = [*PYTHON, LAUNCH, command]
    plain = {name: value for name, value in os.environ.items() if not name.startswith("TORCH_POOL_")}

    def variant(**changed: str) -> Callable[[], float]:
        return lambda: milliseconds_to_exec(launch, {**plain, **changed}, opened)

    with_gpu = {
        "launch, GPU there: pool probe": variant(),
        "launch, TORCH_POOL_PROBE=0": variant(TORCH_POOL_PROBE="0"),
        "launch, native: no probe": variant(TORCH_POOL_ALLOCATOR="native"),
        "launch, profile shared: NVML, pick, pool probe": variant(TORCH_POOL_PROFILE="shared"),
    }
    without_gpu = {
        PLAIN: variant(),
        "launch, -e conf of the user": variant(**{CONF: "expandable_segments:True"}),
        "launch, TORCH_POOL_ALLOCATOR": variant(TORCH_POOL_ALLOCATOR="native"),
        "launch, another profile of the image": variant(TORCH_POOL_PROFILE="nlp"),
        "launch, a mounted YAML profile": variant(TORCH_POOL_PROFILE=str(profile)),
        "launch, TORCH_POOL_LOG=json": variant(TORCH_POOL_LOG="json"),
    }
    return {
        SHELL: lambda: milliseconds_to_exec(["/bin/sh", "-c", f"exec {command}"], plain, opened),
        BARE: lambda: milliseconds_to_exec([*PYTHON, "-c", "pass"], plain),
        **(with_gpu if has_gpu else without_gpu),
    }


def watch(path: str) -> int:
    """A descriptor that can be read once for each time that the file is opened."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.inotify_init1(os.O_CLOEXEC)
    if descriptor < 0 or libc.inotify_add_watch(descriptor, os.fsencode(path), IN_OPEN) < 0:
        raise OSError(ctypes.get_errno(), "inotify does not work here")
    return int(descriptor)


def time_variants(compared: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Milliseconds of every round, by variant."""
    found: dict[str, list[float]] = {name: [] for name in compared}
    for number in range(rounds + WARM_UP):
        for name, run in compared.items():
            took = run()
            if number >= WARM_UP:
                found[name].append(round(took, 3))
    return found


def milliseconds_to_exec(command: list[str], environ: Mapping[str, str], opened: int | None = None) -> float:
    """From the start of the process until the command is opened, or without `opened` until it has ended."""
    silence = [(os.POSIX_SPAWN_OPEN, descriptor, os.devnull, os.O_WRONLY, 0) for descriptor in (1, 2)]
    start = time.perf_counter()
    child = os.posix_spawn(command[0], command, environ, file_actions=silence)
    if opened is not None:
        select.select([opened], [], [], LIMIT_SECONDS)
        took = time.perf_counter() - start
    status = os.waitpid(child, 0)[1]
    if opened is None:
        took = time.perf_counter() - start
    else:
        os.read(opened, 4096)
    if status:
        raise SystemExit(f"{command} ended with status {os.waitstatus_to_exitcode(status)}")
    return took * 1000


def ask(program: str) -> str:
    """What a Python like the launch's prints."""
    reader, writer = os.pipe()
    actions = [
        (os.POSIX_SPAWN_DUP2, writer, 1),
        (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
    ]
    child = os.posix_spawn(PYTHON[0], [*PYTHON, "-c", program], os.environ, file_actions=actions)
    os.close(writer)
    with open(reader) as file:  # noqa: PTH123 -- a descriptor
        answer = file.read()
    os.waitpid(child, 0)
    return answer.strip()


def time_judge(confs: list[str]) -> list[float]:
    """Milliseconds for each conf, in a process that has judged one before."""
    sys.path.insert(0, LIBRARY)
    from torch_pool.conf import judge  # noqa: PLC0415 -- only inside an image it lies there

    judge("", "2.6.0")
    found = []
    for conf in confs:
        start = time.perf_counter()
        judge(conf, "2.6.0+cu124")
        found.append(round((time.perf_counter() - start) * 1000, 4))
    return found


if __name__ == "__main__":
    main()
