"""What kind of GPU access this container has, why no GPU is usable, and what follows from that."""

import os

from torch_pool.finding import Finding
from torch_pool.libraries import find_library, under
from torch_pool.record import TYPE_CHECKING, NamedTuple
from torch_pool.visible import VARIABLE, describe_hidden, parse_visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Literal

    from torch_pool.child import Failure
    from torch_pool.driver import Probe

    Platform = Literal["nvidia", "wsl2", "tegra"]
    Policy = Literal["required", "wanted", "none"]

DRIVER_FLOOR = {11: 450, 12: 525, 13: 580}
"""The oldest driver branch for a CUDA major version (CUDA compatibility guide, minor compatibility)."""
_TEGRA_SIGNS = ("/dev/nvmap", "/dev/nvhost-gpu", "/dev/nvgpu", "/etc/nv_tegra_release")
_REMEDY = (
    "start it with --gpus all (docker), --device nvidia.com/gpu=all (podman, CDI), "
    "or a limit nvidia.com/gpu: 1 (Kubernetes)"
)


class Access(NamedTuple):
    """What can be seen without a library. `hidden` says why CUDA_VISIBLE_DEVICES leaves no device.

    `nodes` are the numbers of /dev/nvidia<n>; a privileged container has those of all GPUs of the host, WSL2
    and Tegra have none. `libcuda` is the version in the name of the library's file, or "unknown".
    """

    platform: "Platform | None"
    nodes: tuple[int, ...] = ()
    driver: str | None = None
    libcuda: str | None = None
    hidden: str | None = None
    capabilities: str | None = None
    by_cdi: bool = False
    cuda_major: int = 12
    probe: "Probe | Failure | None" = None

    @property
    def usable(self) -> bool:
        """Whether nothing is known that keeps CUDA from a device."""
        return find_fault(self) is None


def inspect(environ: "Mapping[str, str]", root: str = "/", cuda_major: int = 12) -> Access:
    """Look at device nodes, /proc and the environment: cheap, with no NVML and no child process.

    `cuda_major` is that of the image's torch; it decides how old a driver may be.
    """
    nodes = _read_nodes(root)
    libcuda = find_library("libcuda.so.1", environ, root)
    return Access(
        platform=_platform(nodes, root),
        nodes=nodes,
        driver=read_driver_version(root),
        libcuda=libcuda and (libcuda.version or "unknown"),
        hidden=_hidden(environ),
        capabilities=environ.get("NVIDIA_DRIVER_CAPABILITIES"),
        # Devices that are injected by CDI come with the value void, which thus does not mean "no GPU".
        by_cdi=environ.get("NVIDIA_VISIBLE_DEVICES") == "void" and bool(nodes),
        cuda_major=cuda_major,
    )


def parse_driver_version(text: str) -> str | None:
    """The version in /proc/driver/nvidia/version, whose line differs between closed and open modules.

    Closed: "NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat ..."; open: "NVIDIA UNIX Open Kernel Module for
    x86_64  580.159.04  Release Build".
    """
    for line in text.splitlines():
        if line.startswith("NVRM version:"):
            words = line.partition("Kernel Module")[2].split()
            return next((word for word in words if word[0].isdigit() and "." in word), None)
    return None


def read_driver_version(root: str = "/") -> str | None:
    """The kernel driver of the host, which any container on it can read; WSL2 and Tegra do not tell."""
    try:
        with open(under(root, "/proc/driver/nvidia/version"), encoding="utf-8", errors="replace") as file:
            return parse_driver_version(file.read())
    except OSError:
        return None


def with_probe(access: Access, environ: "Mapping[str, str]") -> Access:
    """The access with CUDA's own word on it, which takes a child process about 200 ms.

    Nothing is asked where no GPU is usable anyway, twice, or with TORCH_POOL_PROBE=0.
    """
    if access.probe is not None or not access.usable or environ.get("TORCH_POOL_PROBE") == "0":
        return access
    from torch_pool.driver import probe  # noqa: PLC0415 - only who asks pays for it

    return access._replace(probe=probe(environ))


def enforce(findings: "Iterable[Finding]", policy: "Policy") -> tuple[Finding, ...]:
    """Make each finding about a GPU as grave as the policy says, and keep the first of each code.

    Their codes begin with `gpu-`, and a refusal for one of them exits with 69.
    """
    graded: dict[str, Finding] = {}
    for finding in findings:
        severity = finding.severity
        if finding.code.startswith("gpu-"):
            if severity == "warn" and policy == "none":
                continue
            severity = "refuse" if policy == "required" else severity
        graded.setdefault(finding.code, finding._replace(severity=severity))
    return tuple(graded.values())


def find_fault(access: Access) -> Finding | None:
    """Why no GPU is usable, or None where one is; the first reason that holds, from host to process."""
    fault = (
        _no_device(access)
        or _no_libcuda(access)
        or _hidden_fault(access)
        or _old_driver(access)
        or _probe_fault(access)
    )
    return Finding("warn", *fault) if fault else None


def judge_nvml(failure: "Failure") -> tuple[Finding, ...]:
    """What it means that NVML gives no answer: for most refusals that the GPU is out of reach."""
    from torch_pool.nvml import describe  # noqa: PLC0415 - only a failure pays for it

    if failure.kind != "refused":
        return (Finding("note", "nvml-silent", None, describe(failure)),)
    advice = "; recreate the container: nothing inside it can repair this" if failure.code == 999 else ""
    return (Finding("warn", f"gpu-nvml-{failure.code}", None, describe(failure) + advice),)


def pool_fallback(
    access: Access, profile_fallback: str | None, environ: "Mapping[str, str]"
) -> tuple[str | None, tuple[Finding, ...]]:
    """The allocator to take in place of async, or None to stay; for a profile whose allocator is async.

    Probes the devices unless the access has been probed, with TORCH_POOL_PROBE=0 or without a usable GPU.
    """
    access = with_probe(access, environ)
    if access.probe is None:
        return None, ()
    fault = find_fault(access)
    return (None, (fault,)) if fault else _judge_pools(access, profile_fallback)


def _judge_pools(access: Access, fallback: str | None) -> tuple[str | None, tuple[Finding, ...]]:
    from torch_pool.driver import Probe, describe  # noqa: PLC0415 - imported by whoever made the probe

    if not isinstance(access.probe, Probe):
        failure = describe(access.probe) if access.probe else ""
        message = f"whether the GPUs have memory pools is unknown, the allocator stays: {failure}"
        return None, (Finding("warn", "probe-failed", None, message),)
    without = [device for device in access.probe.devices if device.pools is False]
    if not without:
        return None, ()
    names = ", ".join(f"GPU {device.ordinal} ({device.name})" for device in without)
    word = _fit(fallback, access)
    stays = "torch will fail at its first allocation; set TORCH_POOL_ALLOCATOR=native"
    outcome = f"the allocator is {word} instead" if word else stays
    message = f"{names} has no memory pools, which cudaMallocAsync needs: {outcome}"
    return word, (Finding("warn", "no-memory-pools", None, message),)


def _fit(fallback: str | None, access: Access) -> str | None:
    """The fallback; native where expandable segments lack virtual memory or are unproven (WSL2)."""
    from torch_pool.driver import Probe  # noqa: PLC0415

    if fallback in (None, "none"):
        return None
    devices = access.probe.devices if isinstance(access.probe, Probe) else ()
    can_expand = access.platform != "wsl2" and all(device.vmm for device in devices)
    return fallback if fallback != "expandable" or can_expand else "native"


def _read_nodes(root: str) -> tuple[int, ...]:
    try:
        names = os.listdir(under(root, "/dev"))
    except OSError:
        return ()
    numbers = (name.removeprefix("nvidia") for name in names if name.startswith("nvidia"))
    return tuple(sorted(int(number) for number in numbers if number.isdigit()))


def _platform(nodes: tuple[int, ...], root: str) -> "Platform | None":
    if nodes:
        return "nvidia"
    if os.path.exists(under(root, "/dev/dxg")):
        return "wsl2"
    return "tegra" if any(os.path.exists(under(root, sign)) for sign in _TEGRA_SIGNS) else None


def _hidden(environ: "Mapping[str, str]") -> str | None:
    """Why a value leaves no device, however many there are; one that does so here is for devices.choose."""
    value = environ.get(VARIABLE)
    if value is None:
        return None
    visible = parse_visible(value)
    return None if visible.seen else describe_hidden(value, visible)


def _no_device(access: Access) -> tuple[str, str | None, str] | None:
    if access.platform is not None:
        return None
    if access.driver is None:
        message = f"no GPU: no NVIDIA driver is to be seen; use a host that has one, and {_REMEDY}"
        return "gpu-no-driver", None, message
    message = (
        f"no GPU: the host has NVIDIA driver {access.driver}, but the container was given no device; "
        f"{_REMEDY}"
    )
    return "gpu-not-passed", None, message


def _no_libcuda(access: Access) -> tuple[str, str | None, str] | None:
    if access.libcuda is not None:
        return None
    message = (
        "a GPU is there, but libcuda.so.1 is not; start the container with the NVIDIA runtime and "
        f"NVIDIA_DRIVER_CAPABILITIES=compute,utility (it is {access.capabilities or 'unset'})"
    )
    return "gpu-no-libcuda", "NVIDIA_DRIVER_CAPABILITIES", message


def _hidden_fault(access: Access) -> tuple[str, str | None, str] | None:
    if access.hidden is None:
        return None
    return "gpu-hidden", VARIABLE, f"{access.hidden}; unset it to use the GPUs of the container"


def _old_driver(access: Access) -> tuple[str, str | None, str] | None:
    """A newer libcuda (forward compatibility) makes up for an old kernel driver; the probe then tells."""
    floor = DRIVER_FLOOR.get(access.cuda_major)
    newest = max((_branch(version) for version in (access.driver, access.libcuda)), default=0)
    if floor is None or access.driver is None or newest >= floor:
        return None
    message = (
        f"NVIDIA driver {access.driver} is too old: CUDA {access.cuda_major} needs >= {floor}; "
        "update the driver of the host, or use an image for an older CUDA"
    )
    return "gpu-old-driver", None, message


def _branch(version: str | None) -> int:
    first = (version or "").partition(".")[0]
    return int(first) if first.isdigit() else 0


def _probe_fault(access: Access) -> tuple[str, str | None, str] | None:
    if access.probe is None:
        return None
    from torch_pool.child import Failure  # noqa: PLC0415 - imported by whoever made the probe
    from torch_pool.driver import TOO_OLD, describe  # noqa: PLC0415

    failure = access.probe
    if not isinstance(failure, Failure):
        if failure.version // 1000 >= access.cuda_major:
            return None
        failure = Failure("refused", TOO_OLD, f"libcuda for CUDA {failure.version // 1000}")
    if failure.kind == "library-missing":
        return "gpu-no-libcuda", None, describe(failure)
    if failure.kind != "refused":
        # A probe that hangs or crashes proves nothing; pool_fallback warns, and the start goes on.
        return None
    versions = f" (kernel driver {access.driver}, libcuda {access.libcuda})"
    told = describe(failure) + (versions if failure.code in (803, 804) else "")
    return f"gpu-cuda-{failure.code}", None, told
