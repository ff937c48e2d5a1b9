"""The surroundings of a command: shared memory, and programs that are known to clash with an allocator."""

import os

from torch_pool.finding import Finding
from torch_pool.launch import SHM, file_system_bytes
from torch_pool.record import TYPE_CHECKING
from torch_pool.size import format_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch_pool.profile import Profile

CLASHING = {
    "vllm": "it manages pools of its own through torch.cuda.MemPool",
    "sglang": "it captures CUDA graphs and moves memory through torch.cuda.MemPool",
    "text-generation-launcher": "it sizes its cache by the native allocator's statistics",
}
"""Programs that rely on what the async allocator of torch 2.6 does not have, by name."""


def check_shm(profile: "Profile", directory: str = SHM) -> list[Finding]:
    """Data-loader workers hand tensors over through /dev/shm, and die by SIGBUS when it is full."""
    if not profile.shm_bytes:
        return []
    found_bytes = file_system_bytes(directory)
    if found_bytes >= profile.shm_bytes:
        return []
    wanted, short = format_size(profile.shm_bytes), f"{profile.shm_bytes >> 20}m"
    message = (
        f"{directory} is {format_size(found_bytes)}, profile {profile.name} wants at least {wanted} for "
        f"data-loader workers: docker run --shm-size={short}, or in Kubernetes an emptyDir with "
        f"medium: Memory mounted at {directory}"
    )
    return [Finding("warn", "shm-small", directory, message)]


def check_program(argv: "Sequence[str]", backend: str) -> list[Finding]:
    """One warning for a program that is known not to work well under the async allocator."""
    name = clashing_program(argv)
    if name is None or backend != "cudaMallocAsync":
        return []
    message = (
        f"{name} is known to clash with the async allocator ({CLASHING[name]}); "
        "TORCH_POOL_ALLOCATOR=native avoids that"
    )
    return [Finding("warn", "program-clash", None, message)]


def clashing_program(argv: "Sequence[str]") -> str | None:
    """The known program that the command line starts: by its own name, or as python -m NAME."""
    words = [os.path.basename(argv[0]) if argv else ""]
    if words[0].startswith("python") and "-m" in argv[1:-1]:
        words.append(argv[argv.index("-m", 1) + 1].partition(".")[0])
    elif words[0].startswith("python"):
        words += [os.path.basename(argument) for argument in argv[1:2]]
    return next((word for word in words if word in CLASHING), None)
