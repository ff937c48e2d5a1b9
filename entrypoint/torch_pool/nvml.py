"""What NVML knows: GPUs, their memory and MIG devices, in PCI order and whatever CUDA_VISIBLE_DEVICES says.

The library is opened around one query, in a child process: its first use can take seconds where persistence
mode is off, and after a daemon-reload on the host it may refuse or hang (nvidia-container-toolkit issue 48).
Names and numbers are those of nvml.h, CUDA 12.4.
"""

from torch_pool.child import LIMIT_SECONDS, Failure, ask
from torch_pool.record import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

LIBRARY = "libnvidia-ml.so.1"
_ERRORS = {
    3: "not supported",
    4: "no permission",
    6: "not found",
    9: "driver not loaded",
    12: "a library it needs is missing",
    15: "GPU is lost",
    18: "driver and library versions differ",
    999: "unknown error",
}


class Mig(NamedTuple):
    """One MIG device. Memory is None where NVML does not tell."""

    uuid: str
    gpu_instance: int | None = None
    compute_instance: int | None = None
    total_bytes: int | None = None
    free_bytes: int | None = None


class Gpu(NamedTuple):
    """One GPU; `mig` is None where MIG is off. `fault` says why the rest is unknown (a lost GPU, say)."""

    nvml_index: int
    uuid: str | None = None
    name: str | None = None
    total_bytes: int | None = None
    free_bytes: int | None = None
    mig: tuple[Mig, ...] | None = None
    fault: str | None = None


class Inventory(NamedTuple):
    """All GPUs of this container, with the version of the kernel driver."""

    driver: str
    gpus: tuple[Gpu, ...]


def query(limit_seconds: float = LIMIT_SECONDS, library: str = LIBRARY) -> Inventory | Failure:
    """The inventory, or the Failure; the code of a refusal is NVML's."""
    answer = ask(lambda: _read(library), limit_seconds)
    if isinstance(answer, Failure):
        return answer
    driver, gpus = answer
    return Inventory(driver, tuple(_gpu(*fields) for fields in gpus))


def unnamed_gpus(nodes: "Sequence[int]") -> tuple[Gpu, ...]:
    """What device nodes tell of the GPUs, where NVML is silent: how many there are.

    The container counts from 0, whatever the number of a node is on the host.
    """
    return tuple(Gpu(place) for place, _ in enumerate(nodes))


def _read(library: str) -> "Any":
    from torch_pool.nvml_library import read_inventory  # noqa: PLC0415 - ctypes, for the child

    return read_inventory(library)


def describe(failure: Failure) -> str:
    """The failure as the end of a sentence, such as: NVML refused (nvmlInit_v2: unknown error, 999)."""
    if failure.kind == "refused":
        return f"NVML refused ({failure.detail}: {error_text(failure.code)})"
    if failure.kind == "library-missing":
        return f"NVML is missing ({LIBRARY}); start with NVIDIA_DRIVER_CAPABILITIES=compute,utility"
    return f"NVML gave no answer ({failure.kind}: {failure.detail})"


def error_text(code: int | None) -> str:
    """The meaning of NVML's error number, with the number."""
    return f"{_ERRORS.get(code or 0, 'error')}, {code}"


def _gpu(*fields: "Any") -> Gpu:
    gpu = Gpu(*fields)
    return gpu if gpu.mig is None else gpu._replace(mig=tuple(Mig(*values) for values in gpu.mig))
