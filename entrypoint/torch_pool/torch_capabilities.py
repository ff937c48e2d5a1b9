"""Runs inside the image's own Python, one question a process: does this work under this allocator?

Each function does the real thing and checks its result; whatever it raises is the answer. The protocol is
that of torch_probe. Nothing fills a GPU: what needs an out-of-memory error gets a small share of it first.
"""

import os
import pickle
import runpy
import subprocess
import sys
from typing import Any

_SMALL_SHARE = 0.02
_PINNED = "pinned_use_cuda_host_register:True,pinned_num_register_threads:8"
_CONF = "PYTORCH_CUDA_ALLOC_CONF"
_RECEIVER = """
import pickle, sys
rebuild, arguments = pickle.load(sys.stdin.buffer)
assert rebuild(*arguments).sum().item() == 1024, "other bytes arrive"
"""


def cuda_graph() -> None:
    torch = _cuda()
    given = torch.ones(1024, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = given * 2
    given.fill_(3)
    graph.replay()
    _equal(made.sum(), 6 * 1024)


def compile_default() -> None:
    _compile("default")


def compile_reduce_overhead() -> None:
    _compile("reduce-overhead")


def cuda_ipc() -> None:
    torch = _cuda()
    tensor = torch.ones(1024, device="cuda")
    handle = pickle.dumps(torch.multiprocessing.reductions.reduce_tensor(tensor))
    done = subprocess.run(
        [sys.executable, "-c", _RECEIVER], input=handle, capture_output=True, check=False, timeout=100
    )
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise RuntimeError(f"the other process ended with status {done.returncode}: {said}")


def mempool() -> None:
    torch = _cuda()
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        tensor = torch.ones(1024, device="cuda")
    _equal(tensor.sum(), 1024)


def memory_snapshot() -> None:
    torch = _cuda()
    _ = torch.ones(1024, device="cuda")
    if not torch.cuda.memory_snapshot():
        raise RuntimeError("the snapshot is empty")


def memory_history() -> None:
    torch = _cuda()
    torch.cuda.memory._record_memory_history(max_entries=100)  # noqa: SLF001 - torch's documented name
    _ = torch.ones(1024, device="cuda")
    if not any(torch.cuda.memory._snapshot()["device_traces"]):  # noqa: SLF001 - as above
        raise RuntimeError("the history is empty")


def oom_observer() -> None:
    torch = _cuda()
    told: list[int] = []
    torch._C._cuda_attach_out_of_memory_observer(lambda *numbers: told.append(len(numbers)))  # noqa: SLF001
    _run_out(torch)
    if not told:
        raise RuntimeError("the observer was not called")


def pinned_options() -> None:
    os.environ[_CONF] = ",".join(filter(None, (os.environ.get(_CONF), _PINNED)))
    torch = _cuda()
    pinned = torch.ones(1 << 20, pin_memory=True)
    _equal(pinned.to("cuda", non_blocking=True).sum(), 1 << 20)


def memory_fraction() -> None:
    _run_out(_cuda())


def auto_batch_size() -> None:
    """What accelerate, Lightning and others look for in the text of an out-of-memory error."""
    error = _run_out(_cuda())
    try:
        from accelerate.utils.memory import should_reduce_batch_size as finds  # noqa: PLC0415
    except ImportError:
        finds = _has_the_words
    if not finds(error):
        first = str(error).partition("\n")[0]
        raise RuntimeError(f"a finder of a batch size does not know the error {first!r}")


QUESTIONS = {
    question.__name__.replace("_", "-"): question
    for question in (
        cuda_graph,
        compile_default,
        compile_reduce_overhead,
        cuda_ipc,
        mempool,
        memory_snapshot,
        memory_history,
        oom_observer,
        pinned_options,
        memory_fraction,
        auto_batch_size,
    )
}


def _cuda() -> Any:
    import torch  # noqa: PLC0415 - after the conf is final

    if not torch.cuda.is_available():
        raise LookupError("no GPU")
    torch.cuda.init()
    return torch


def _has_the_words(error: BaseException) -> bool:
    return "CUDA out of memory" in str(error)


def _compile(mode: str) -> None:
    torch = _cuda()
    compiled = torch.compile(lambda given: (given * 2 + 1).relu(), mode=mode)
    for value in range(4):
        _equal(compiled(torch.full((1024,), float(value), device="cuda")).sum(), 1024 * (2 * value + 1))


def _run_out(torch: Any) -> BaseException:
    """The out-of-memory error of a process that may use little; raises RuntimeError where it may use more."""
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(_SMALL_SHARE)
    try:
        _ = torch.empty(int(total * _SMALL_SHARE * 2), dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError as error:
        full: BaseException = error
        return full
    raise RuntimeError("the share is no limit")


def _equal(found: Any, expected: float) -> None:
    if found.item() != expected:
        raise RuntimeError(f"wrong result: {found.item()} for {expected}")


if __name__ == "__main__":
    _probe = runpy.run_path(os.path.join(os.path.dirname(__file__), "torch_probe.py"))
    _probe["answer"](int(sys.argv[1]), sys.argv[2:], QUESTIONS)
