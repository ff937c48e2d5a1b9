"""What the doctor says about driver, CUDA and GPUs."""

from torch_pool import driver
from torch_pool.driver import Probe
from torch_pool.gpu import DRIVER_FLOOR, find_fault, judge_nvml
from torch_pool.machine import Check, Machine
from torch_pool.nvml import Inventory
from torch_pool.record import TYPE_CHECKING
from torch_pool.size import format_size
from torch_pool.visible import VARIABLE, judge, parse_visible

if TYPE_CHECKING:
    from torch_pool.nvml import Gpu


def check_access(machine: Machine) -> Check:
    """How a GPU reaches this container, or why none does."""
    access = machine.access._replace(probe=None, hidden=None)
    fault = find_fault(access)
    if fault:
        return Check("access", "warning" if access.platform is None else "error", *_split(fault.message))
    ways = {"nvidia": f"device nodes {_nodes(machine)}", "wsl2": "WSL2, /dev/dxg", "tegra": "Tegra"}
    way = ways[access.platform or "nvidia"]
    return Check("access", "ok", f"{way}, injected by CDI" if access.by_cdi else way)


def check_driver(machine: Machine) -> Check:
    """The kernel driver against the floor of the image's CUDA."""
    version, major = machine.access.driver, machine.access.cuda_major
    if version is None:
        return Check("driver", "not applicable", "no kernel driver tells its version here")
    fault = find_fault(machine.access._replace(probe=None, hidden=None))
    if fault and fault.code == "gpu-old-driver":
        return Check("driver", "error", *_split(fault.message))
    return Check("driver", "ok", f"{version} (CUDA {major} needs >= {DRIVER_FLOOR.get(major, 'unknown')})")


def check_libcuda(machine: Machine) -> Check:
    """Libcuda against the kernel driver: they come as a pair, and 803 or 804 is what comes of another one."""
    libcuda, kernel = machine.access.libcuda, machine.access.driver
    if libcuda is None:
        return Check("libcuda", "not applicable", "there is no libcuda.so.1")
    if kernel is None or libcuda in (kernel, "unknown"):
        return Check("libcuda", "ok", f"{libcuda}")
    advice = (
        "they come as a pair, and CUDA may fail with error 803 or 804; take CUDA compat directories off "
        "LD_LIBRARY_PATH, the NVIDIA container toolkit adds them where they work"
    )
    return Check("libcuda", "warning", f"libcuda {libcuda} with kernel driver {kernel}", advice)


def check_cuda(machine: Machine) -> Check:
    """What CUDA itself sees from this process."""
    probe = machine.access.probe
    if probe is None:
        return Check("cuda", "not applicable", "not asked: no usable GPU, or TORCH_POOL_PROBE=0")
    if not isinstance(probe, Probe):
        return Check("cuda", "error", *_split(driver.describe(probe)))
    fault = find_fault(machine.access)
    if fault:
        return Check("cuda", "error", *_split(fault.message))
    version = f"{probe.version // 1000}.{probe.version % 1000 // 10}"
    return Check(
        "cuda", "ok", f"the driver supports CUDA {version} and shows {_count(len(probe.devices), 'device')}"
    )


def check_gpus(machine: Machine) -> Check:
    """NVML's list: all GPUs of the container, whatever is visible to CUDA."""
    inventory = machine.inventory
    if inventory is None:
        return Check("gpus", "not applicable", "not asked: no GPU is there")
    if not isinstance(inventory, Inventory):
        (finding,) = judge_nvml(inventory)
        return Check("gpus", "error" if finding.severity == "warn" else "warning", *_split(finding.message))
    lost = any(gpu.fault for gpu in inventory.gpus)
    seen = "; ".join(_describe(gpu) for gpu in inventory.gpus) or "NVML lists no GPU"
    advice = "a lost GPU needs a reset or a restart of the host; see its dmesg" if lost else ""
    return Check("gpus", "error" if lost else "ok", seen, advice)


def check_visible(machine: Machine) -> Check:
    """CUDA_VISIBLE_DEVICES of this process against the GPUs of the container."""
    value = machine.environ.get(VARIABLE)
    gpus = machine.gpus
    if value is None:
        return Check("visible", "ok", f"{VARIABLE} is unset: every GPU")
    there = "an unknown number of GPUs" if gpus is None else _count(len(gpus), "GPU")
    visible = parse_visible(value, gpus)
    if not visible.seen:
        why = f" ({visible.why_not_all})" if visible.why_not_all else ""
        seen = f"hidden by {VARIABLE}={value!r} set in this process{why}, container has {there}"
        return Check(
            "visible", "warning", seen, "unset it, or see who sets it: a scheduler such as Ray may do so"
        )
    findings = judge(machine.environ, gpus)
    if findings:
        return Check("visible", "warning", *_split(findings[0].message))
    return Check("visible", "ok", f"{VARIABLE}={value}, container has {there}")


def check_pools(machine: Machine) -> Check:
    """Memory pools, without which cudaMallocAsync fails at the first allocation."""
    return _check_attribute(
        machine, "pools", "memory pools (cudaMallocAsync)", "set TORCH_POOL_ALLOCATOR=native, or expandable"
    )


def check_vmm(machine: Machine) -> Check:
    """Virtual memory management, on which expandable segments are built."""
    return _check_attribute(
        machine, "vmm", "virtual memory (expandable segments)", "do not use expandable here"
    )


def _check_attribute(machine: Machine, attribute: str, what: str, advice: str) -> Check:
    probe = machine.access.probe
    if not isinstance(probe, Probe):
        return Check(attribute, "not applicable", f"{what}: CUDA was not asked")
    without = [device for device in probe.devices if getattr(device, attribute) is not True]
    if not without:
        return Check(attribute, "ok", f"{what}: on every visible device")
    names = ", ".join(f"{device.ordinal} ({device.name})" for device in without)
    return Check(attribute, "warning", f"{what}: not on device {names}", advice)


def _describe(gpu: "Gpu") -> str:
    if gpu.fault:
        return f"{gpu.nvml_index} {gpu.fault}"
    memory = "" if gpu.total_bytes is None else f" {format_size(gpu.total_bytes)}"
    migs = "" if gpu.mig is None else f" MIG: {', '.join(mig.uuid for mig in gpu.mig) or 'no device'}"
    return f"{gpu.nvml_index} {gpu.name}{memory} {gpu.uuid}{migs}"


def _nodes(machine: Machine) -> str:
    return ", ".join(f"/dev/nvidia{number}" for number in machine.access.nodes)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _split(message: str) -> tuple[str, str]:
    """What was seen and what to do; our sentences put a semicolon between them."""
    seen, _, advice = message.partition("; ")
    return seen, advice
