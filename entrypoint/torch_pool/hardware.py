"""What the GPUs of this container mean for a launch: policy, devices, and the fallback of the allocator."""

from torch_pool.conf import CONF_BY_ALLOCATOR
from torch_pool.devices import ORDER, choose, hold_earlier, parse_spec
from torch_pool.finding import Finding
from torch_pool.gpu import enforce, find_fault, inspect, judge_nvml, pool_fallback, with_probe
from torch_pool.launch import CONF
from torch_pool.record import TYPE_CHECKING, NamedTuple
from torch_pool.resolution import Setting
from torch_pool.visible import VARIABLE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch_pool.devices import Choice
    from torch_pool.gpu import Access
    from torch_pool.nvml import Gpu
    from torch_pool.profile import Devices
    from torch_pool.resolution import Resolution
    from torch_pool.settings import Settings

EARLIER = "earlier launch"
_DEFAULT_CUDA = 12


class Fit(NamedTuple):
    """`conf` takes the place of the resolved one where the GPUs cannot do what that asks for."""

    devices: tuple[Setting, ...]
    conf: Setting | None
    findings: tuple[Finding, ...]


def fit(
    resolution: "Resolution",
    asked: "Settings",
    environ: "Mapping[str, str]",
    command: "Sequence[str]",
    *,
    picked: "Mapping[str, str]",
) -> Fit:
    """Look at the GPUs, and pick where that is asked for. `picked` is what an earlier launch chose."""
    profile = resolution.profile
    access = inspect({**environ, **picked}, cuda_major=cuda_major(resolution.torch_version))
    spec = parse_spec(asked.devices, profile.devices.choose) if asked.devices else profile.devices
    gpus, silence = _list_gpus(access, spec, {**environ, **picked} if asked.lock_dir else environ)
    choice = choose(spec, {**environ, **picked}, gpus, command, asked.lock_dir)
    devices = _settings(choice, picked, "TORCH_POOL_DEVICES" if asked.devices else resolution.source)
    held = _check_locks(asked.lock_dir, gpus, devices, picked.get(VARIABLE)) if asked.lock_dir else ()
    environ = {**environ, **{setting.name: setting.value for setting in devices}}
    if profile.gpu == "required" or (asked.strict and profile.gpu != "none"):
        access = with_probe(access, environ)
    fault = find_fault(access)
    conf, pools = _fall_back(resolution, access, environ)
    # Together, because several of them may have seen that the user hides every GPU.
    findings = (*((fault,) if fault else ()), *silence, *_wished(choice, asked), *held, *pools)
    left_alone = () if devices else (Finding("note", "devices", VARIABLE, f"devices: {choice.reason}"),)
    return Fit(devices, conf, (*enforce(findings, profile.gpu), *left_alone))


def cuda_major(torch_version: str) -> int:
    """12 for 2.6.0+cu124; 12 as well for a version that does not tell."""
    digits = torch_version.partition("+cu")[2][:2]
    return int(digits) if len(digits) == 2 and digits.isdigit() else _DEFAULT_CUDA


def _list_gpus(
    access: "Access", spec: "Devices", environ: "Mapping[str, str]"
) -> "tuple[Sequence[Gpu] | None, tuple[Finding, ...]]":
    """NVML's list, where something depends on it; () without a GPU, None where nobody knows or needs to.

    Where NVML is silent the device nodes still tell how many GPUs there are.
    """
    if access.platform is None:
        return (), ()
    if not (spec.pick or spec.listed or VARIABLE in environ):
        return None, ()
    from torch_pool.child import Failure  # noqa: PLC0415 - ctypes is for those who need it
    from torch_pool.nvml import query, unnamed_gpus  # noqa: PLC0415 - as above

    inventory = query()
    if isinstance(inventory, Failure):
        return unnamed_gpus(access.nodes) or None, judge_nvml(inventory)
    return inventory.gpus, ()


def _wished(choice: "Choice", asked: "Settings") -> tuple[Finding, ...]:
    """What there is to say of the choice; a profile's pick that a manager overrules is no warning."""
    return tuple(
        finding._replace(severity="note")
        if finding.code == "devices-left-alone" and not asked.devices
        else finding
        for finding in choice.findings
    )


def _check_locks(
    lock_dir: str, gpus: "Sequence[Gpu] | None", devices: tuple[Setting, ...], earlier: str | None
) -> tuple[Finding, ...]:
    if gpus is not None and not gpus:
        return ()
    if earlier:
        return hold_earlier(earlier, gpus, lock_dir)
    if devices:
        return ()
    message = (
        f"TORCH_POOL_LOCK_DIR={lock_dir!r} holds no GPU, because this launch picks none; "
        "set TORCH_POOL_DEVICES=1, or take the directory out"
    )
    return (Finding("warn", "lock-idle", "TORCH_POOL_LOCK_DIR", message),)


def _settings(choice: "Choice", picked: "Mapping[str, str]", source: str) -> tuple[Setting, ...]:
    """The choice as variables. An earlier choice stays: its lock is held, and a launch never widens one."""
    kept = [
        Setting(name, value, EARLIER, "chosen by the launch around this one")
        for name, value in picked.items()
    ]
    chosen = [Setting(VARIABLE, choice.visible, source, choice.reason)] if choice.visible else []
    ordered = [Setting(ORDER, choice.order, source, "indices count by PCI bus")] if choice.order else []
    return (*kept, *chosen, *ordered)


def _fall_back(
    resolution: "Resolution", access: "Access", environ: "Mapping[str, str]"
) -> tuple[Setting | None, tuple[Finding, ...]]:
    if resolution.verdict.backend != "cudaMallocAsync":
        return None, ()
    fallback = None if resolution.insisted else resolution.profile.fallback
    word, findings = pool_fallback(access, fallback, environ)
    if word is None:
        return None, findings
    reason = f"fallback of profile {resolution.profile.name}: a GPU without memory pools"
    return Setting(CONF, CONF_BY_ALLOCATOR[word], "fallback", reason), findings
