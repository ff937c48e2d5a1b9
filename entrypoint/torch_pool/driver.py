"""What CUDA itself sees: libcuda asked in a child process, because cuInit leaves a process unable to fork.

Names and numbers are those of cuda.h, CUDA 12.4.
"""

from torch_pool.child import LIMIT_SECONDS, Failure, ask
from torch_pool.record import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

LIBRARY = "libcuda.so.1"

TOO_OLD = 35
ERRORS = {
    TOO_OLD: (
        "the driver is too old for the CUDA of this image",
        "update the NVIDIA driver of the host, or use an image for an older CUDA",
    ),
    100: (
        "CUDA sees no device",
        "check CUDA_VISIBLE_DEVICES, and that the container was started with a GPU (--gpus all)",
    ),
    101: (
        "a device is listed twice or is invalid",
        "list each device once in CUDA_VISIBLE_DEVICES",
    ),
    802: (
        "the system is not ready",
        "start nvidia-fabricmanager on the host: GPUs behind NVSwitch need it",
    ),
    803: (
        "the kernel driver and libcuda do not match",
        "take CUDA compat directories off LD_LIBRARY_PATH; restart the host after a driver update",
    ),
    804: (
        "forward compatibility does not work on this GPU",
        "take CUDA compat directories off LD_LIBRARY_PATH, or update the NVIDIA driver of the host",
    ),
    999: (
        "the driver failed for a reason it does not tell",
        "recreate the container (a daemon-reload on the host breaks it); then see the host's dmesg",
    ),
}
"""Error number: what it means, and what to do. 35 stands for too low a version."""


class Device(NamedTuple):
    """A device as CUDA numbers it; `pools` and `vmm` are None where the driver does not know them."""

    ordinal: int
    name: str
    pools: bool | None
    vmm: bool | None


class Probe(NamedTuple):
    """`version` is that of the CUDA which libcuda supports: 12040 for 12.4."""

    version: int
    devices: tuple[Device, ...]


def probe(
    environ: "Mapping[str, str]", limit_seconds: float = LIMIT_SECONDS, library: str = LIBRARY
) -> Probe | Failure:
    """The devices as a command with this environment would see them, or the Failure.

    It takes about 200 ms with a GPU, nearly all of it in cuInit, and 20 ms where CUDA sees none.
    """
    answer = ask(lambda: _read(environ, library), limit_seconds)
    if isinstance(answer, Failure):
        return answer
    version, devices = answer
    return Probe(version, tuple(Device(*fields) for fields in devices))


def describe(failure: Failure) -> str:
    """The failure and its remedy, in one sentence without a full stop."""
    if failure.kind == "refused":
        meaning, remedy = ERRORS.get(failure.code or 0, ("CUDA refused", "see cuda.h for the number"))
        return f"{meaning} (CUDA error {failure.code} from {failure.detail}); {remedy}"
    if failure.kind == "library-missing":
        return (
            f"{LIBRARY} cannot be loaded ({failure.detail}); start the container with "
            "NVIDIA_DRIVER_CAPABILITIES=compute,utility and the NVIDIA container runtime"
        )
    return f"{LIBRARY} gave no answer ({failure.kind}: {failure.detail}); look at the host's dmesg"


def _read(environ: "Mapping[str, str]", library: str) -> "Any":
    from torch_pool.cuda_library import read_devices  # noqa: PLC0415 - ctypes, for the child

    return read_devices(environ, library)
