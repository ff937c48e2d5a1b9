import pytest
from torch_pool import hardware
from torch_pool.child import Failure
from torch_pool.driver import Device, Probe
from torch_pool.gpu import Access
from torch_pool.hardware import fit
from torch_pool.launch import CONF
from torch_pool.profile import Devices, Profile
from torch_pool.resolution import Chosen, Setting, resolve
from torch_pool.settings import Settings

PROFILE = Profile("infer", "x", {"backend": "cudaMallocAsync"}, {}, {}, fallback="expandable")
GPU = Access(platform="nvidia", nodes=(0,), driver="550.54", libcuda="550.54")


@pytest.fixture
def on(monkeypatch):
    """Fit a launch to a container with the given access; NVML is not there."""

    def fitted(access, environ=None, asked=Settings(), profile=PROFILE):  # noqa: B008 - immutable
        environ = environ or {}
        monkeypatch.setattr(hardware, "inspect", lambda *_, **__: access)
        monkeypatch.setattr(
            "torch_pool.nvml.query", lambda: Failure("library-missing", None, "libnvidia-ml.so.1")
        )
        resolution = resolve(environ, asked, Chosen(profile), "2.6.0+cu124")
        return fit(resolution, asked, environ, ["python"], picked={})

    return fitted


def probed(*, pools):
    fields = dict.fromkeys(Device._fields) | {"ordinal": 0, "name": "Old GPU", "pools": pools, "vmm": True}
    return GPU._replace(probe=Probe(12040, (Device(**fields),)))


def test_a_gpu_with_memory_pools_keeps_the_allocator(on):
    fitted = on(probed(pools=True))
    assert (fitted.devices, fitted.conf) == ((), None)


def test_a_gpu_without_memory_pools_takes_the_fallback_with_a_warning(on):
    fitted = on(probed(pools=False))
    reason = "fallback of profile infer: a GPU without memory pools"
    assert fitted.conf == Setting(CONF, "expandable_segments:True", "fallback", reason)
    assert [(f.severity, f.code) for f in fitted.findings if f.severity != "note"] == [
        ("warn", "no-memory-pools")
    ]


@pytest.mark.parametrize(
    ("environ", "asked"),
    [({CONF: "backend:cudaMallocAsync"}, Settings()), ({}, Settings(allocator="async"))],
    ids=["-e", "one word"],
)
def test_a_user_who_insists_on_async_keeps_it_and_is_warned(on, environ, asked):
    fitted = on(probed(pools=False), environ, asked)
    assert fitted.conf is None
    assert "no-memory-pools" in [finding.code for finding in fitted.findings]


@pytest.mark.parametrize("code", [803, 804, 999])
@pytest.mark.parametrize("allocator", ["async", "native"])
@pytest.mark.parametrize("policy", ["required", "strict", "wanted"])
def test_what_cuda_itself_refuses_is_a_missing_gpu_wherever_one_is_required(
    on, monkeypatch, code, allocator, policy
):
    """Case C20. With a GPU merely wanted, CUDA is asked for async alone, which needs memory pools."""
    monkeypatch.setattr("torch_pool.driver.probe", lambda _: Failure("refused", code, "cuInit"))
    gpu = "required" if policy == "required" else "wanted"
    asked = Settings(strict=policy == "strict", allocator=allocator)
    fitted = on(GPU, {}, asked, PROFILE._replace(gpu=gpu))
    found = [(f.severity, f.code) for f in fitted.findings if f.code.startswith("gpu-")]
    severity = "refuse" if policy == "required" else "warn"
    silent = policy == "wanted" and allocator == "native"
    assert found == ([] if silent else [(severity, f"gpu-cuda-{code}")])


def test_where_nvml_is_silent_an_index_is_still_held_against_the_device_nodes(on):
    """Case C14: the second GPU of the host, given alone, is number 0 of the container."""
    fitted = on(probed(pools=True)._replace(nodes=(1,)), {"CUDA_VISIBLE_DEVICES": "1"})
    (hidden,) = [finding for finding in fitted.findings if finding.code == "gpu-hidden"]
    assert "index 1 but only 1 GPU in this container (numbered from 0)" in hidden.message


def test_a_user_who_hides_every_gpu_is_told_once(on):
    hidden = GPU._replace(
        hidden="CUDA_VISIBLE_DEVICES='' hides every GPU from CUDA: an empty value means none"
    )
    fitted = on(hidden, {"CUDA_VISIBLE_DEVICES": ""})
    assert [finding.code for finding in fitted.findings].count("gpu-hidden") == 1


@pytest.mark.parametrize(("devices", "severity"), [(None, "note"), ("1", "warn")])
def test_devices_under_a_manager_are_worth_a_warning_only_where_the_user_asked(on, devices, severity):
    """A warning would stop `torchrun` under strict for what the profile alone wants."""
    picking = PROFILE._replace(devices=Devices(pick=1))
    fitted = on(probed(pools=True), {"LOCAL_RANK": "0"}, Settings(devices=devices), picking)
    assert [f.severity for f in fitted.findings if f.code == "devices-left-alone"] == [severity]


def test_a_lock_directory_without_a_pick_is_worth_a_warning(on, tmp_path):
    fitted = on(probed(pools=True), asked=Settings(lock_dir=str(tmp_path)))
    assert ("warn", "lock-idle") in [(finding.severity, finding.code) for finding in fitted.findings]


def test_devices_that_are_picked_are_settings_with_the_source_of_the_wish(on):
    fitted = on(probed(pools=True), asked=Settings(devices="1"))
    assert [setting[:3] for setting in fitted.devices] == [
        ("CUDA_VISIBLE_DEVICES", "0", "TORCH_POOL_DEVICES"),
        ("CUDA_DEVICE_ORDER", "PCI_BUS_ID", "TORCH_POOL_DEVICES"),
    ]
