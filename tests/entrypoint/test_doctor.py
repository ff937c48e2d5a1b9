import json
import os
from pathlib import Path

import pytest
from torch_pool import cli, doctor
from torch_pool.child import Failure
from torch_pool.doctor_container import parse_effective_capabilities
from torch_pool.driver import Device, Probe
from torch_pool.gpu import inspect
from torch_pool.machine import Check, Machine
from torch_pool.nvml import Gpu, Inventory, Mig

ROOTS = Path(__file__).parent.parent / "data" / "roots"
GIB = 1 << 30
FOUR = Inventory("580.159.04", tuple(Gpu(n, f"GPU-{n}", "H200", 140 * GIB, 9) for n in range(4)))
WORKING = Probe(13000, (Device(0, "H200", pools=True, vmm=True),))


def machine(root="h200", *, inventory=None, probe=None, home="/tmp", **environ):
    environ = {"HOME": home, **environ}
    access = inspect(environ, str(ROOTS / root))._replace(probe=probe)
    return Machine(environ, access, inventory, "2.6.0+cu124", os.getuid(), str(ROOTS / root))


def checks(*arguments, **named):
    return {check.name: check for check in doctor.diagnose(machine(*arguments, **named))}


@pytest.mark.parametrize("root", sorted(folder.name for folder in ROOTS.iterdir()))
def test_every_check_has_a_word_on_every_kind_of_container(root):
    found = doctor.diagnose(machine(root))
    assert len({check.name for check in found}) == len(doctor.CHECKS)
    assert not [check for check in found if check.seen.startswith("the check failed")]
    assert not [check for check in found if check.status in ("warning", "error") and not check.advice]


def test_this_machine_is_examined_whatever_it_has(capsys):
    assert doctor.main(["--json"]) in (0, 1)
    report = json.loads(capsys.readouterr().out)
    assert (report["format"], len(report["checks"])) == (1, len(doctor.CHECKS))


def test_a_container_without_a_gpu_is_no_error(capsys, monkeypatch):
    monkeypatch.setattr(doctor, "examine", lambda _environ: machine("bare"))
    assert doctor.main([]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("0 errors")


def test_a_broken_gpu_is_an_error(capsys, monkeypatch):
    monkeypatch.setattr(doctor, "examine", lambda _environ: machine("old-driver"))
    assert doctor.main([]) == 1
    assert "-> update the driver of the host" in capsys.readouterr().out


def test_an_unknown_option_is_a_usage_error(capsys):
    assert cli.main(["doctor", "--nonsense"], None) == 64
    assert "--nonsense" in capsys.readouterr().err


def test_a_hidden_gpu_is_told_with_both_numbers():
    """A scheduler such as Ray sets the variable to nothing in its workers."""
    hidden = checks(inventory=FOUR, CUDA_VISIBLE_DEVICES="")["visible"]
    assert hidden == Check(
        "visible",
        "warning",
        "hidden by CUDA_VISIBLE_DEVICES='' set in this process, container has 4 GPUs",
        "unset it, or see who sets it: a scheduler such as Ray may do so",
    )
    assert checks(inventory=FOUR, CUDA_VISIBLE_DEVICES="2")["visible"].status == "ok"


@pytest.mark.parametrize(
    ("driver", "status", "words"),
    [
        ("470.223.02", "error", "CUDA 12 needs >= 525"),
        ("525.60.13", "ok", "525.60.13 (CUDA 12 needs >= 525)"),
        ("551.78", "ok", "551.78"),
        ("580.159.04", "ok", "580.159.04"),
    ],
)
def test_the_floor_of_cuda_12_is_known(driver, status, words):
    access = machine().access._replace(driver=driver, libcuda=driver)
    check = {c.name: c for c in doctor.diagnose(machine()._replace(access=access))}["driver"]
    assert check.status == status
    assert words in check.seen


def test_a_compat_library_older_than_the_driver_is_named_with_both_versions_and_803():
    check = checks("compat", LD_LIBRARY_PATH="/usr/local/cuda/compat")["libcuda"]
    assert (check.status, check.seen) == ("warning", "libcuda 535.104.05 with kernel driver 550.54.15")
    assert "803" in check.advice


def test_foreign_libraries_on_the_library_path_are_named_with_their_versions(tmp_path):
    old = tmp_path / "opt/old/cudnn"
    old.mkdir(parents=True)
    (old / "libcudnn.so.7.6.5").touch()
    (old / "libcudnn.so.7").symlink_to("libcudnn.so.7.6.5")
    (old / "libpng.so.16").touch()
    (old / "libcudadebugger.so.1").touch()
    own = tmp_path / "usr/lib/python3/site-packages/nvidia/cudnn/lib"
    own.mkdir(parents=True)
    (own / "libcudnn.so.9").touch()
    environ = {"LD_LIBRARY_PATH": "/opt/old/cudnn::/absent:/usr/lib/python3/site-packages/nvidia/cudnn/lib"}
    found = doctor.doctor_container.check_libraries(Machine(environ, machine().access, root=str(tmp_path)))
    assert (found.status, found.seen) == ("warning", "/opt/old/cudnn/libcudnn.so.7 (7.6.5)")


def test_the_drivers_own_libcuda_on_the_library_path_is_not_foreign():
    environ = {"LD_LIBRARY_PATH": "/usr/lib/x86_64-linux-gnu"}
    assert checks("h200", **environ)["libraries"].status == "ok"
    foreign = checks("compat", LD_LIBRARY_PATH="/usr/local/cuda/compat")["libraries"]
    assert foreign.seen == "/usr/local/cuda/compat/libcuda.so.1 (535.104.05)"


def test_gpus_are_listed_with_mig_and_faults():
    gpus = (
        Gpu(0, "GPU-a", "H200", 140 * GIB, 9, (Mig("MIG-1"), Mig("MIG-2"))),
        Gpu(1, fault="GPU is lost, 15"),
    )
    check = checks(inventory=Inventory("580.159.04", gpus))["gpus"]
    assert (check.status, check.seen) == (
        "error",
        "0 H200 140 GiB GPU-a MIG: MIG-1, MIG-2; 1 GPU is lost, 15",
    )


def test_nvml_that_lost_its_gpus_says_that_the_container_must_be_recreated():
    check = checks(inventory=Failure("refused", 999, "nvmlInit_v2"))["gpus"]
    assert (check.status, "recreate the container" in check.advice) == ("error", True)


def test_a_missing_nvml_is_a_warning_with_the_capability_that_brings_it():
    check = checks(inventory=Failure("library-missing"))["gpus"]
    assert (check.status, "utility" in check.advice) == ("warning", True)


def test_pools_and_virtual_memory_are_proved_on_every_visible_device():
    assert [checks(probe=WORKING)[name].status for name in ("cuda", "pools", "vmm")] == ["ok"] * 3
    grid = Probe(13000, (*WORKING.devices, Device(1, "GRID", pools=False, vmm=False)))
    found = checks(probe=grid)
    assert [found[name].status for name in ("cuda", "pools", "vmm")] == ["ok", "warning", "warning"]
    assert found["pools"].seen == "memory pools (cudaMallocAsync): not on device 1 (GRID)"


def test_an_error_of_cuda_is_told_with_what_to_do():
    check = checks(probe=Failure("refused", 802, "cuInit"))["cuda"]
    assert (check.status, "fabricmanager" in check.advice) == ("error", True)


def test_an_unusable_home_is_told(tmp_path):
    check = checks(home=str(tmp_path / "absent"))["user"]
    assert (check.status, "which cannot be written" in check.seen) == ("warning", True)


def test_a_cache_that_others_can_write_is_told(tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    check = checks(TRITON_CACHE_DIR=str(shared))["caches"]
    assert (check.status, f"TRITON_CACHE_DIR={shared}" in check.seen) == ("warning", True)


@pytest.mark.parametrize(
    ("status", "mask"),
    [("Name:\tx\nCapEff:\t00000000a80425fb\n", 0xA80425FB), ("Name:\tx\n", None)],
)
def test_the_effective_capabilities_are_read(status, mask):
    assert parse_effective_capabilities(status) == mask


@pytest.mark.parametrize(
    ("environ", "runtime"),
    [({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "Kubernetes"), ({}, "no sign of a container")],
)
def test_the_runtime_is_named(environ, runtime):
    assert checks("bare", **environ)["runtime"].seen == runtime


def test_a_check_with_a_bug_hides_no_other(monkeypatch):
    def check_nothing(machine):
        raise ValueError("oops")

    monkeypatch.setattr(doctor, "CHECKS", (check_nothing, doctor.doctor_gpu.check_driver))
    broken, driver = doctor.diagnose(machine())
    assert broken == Check("nothing", "error", "the check failed: ValueError: oops", "report this as a bug")
    assert driver.status == "ok"


def test_the_text_puts_advice_below_what_was_seen():
    text = doctor.format_text([Check("shm", "warning", "64 MiB", "more"), Check("user", "ok", "root")])
    assert text == (
        "warning         shm           64 MiB\n"
        "                              -> more\n"
        "ok              user          root\n"
        "\n"
        "0 errors, 1 warning\n"
    )


def test_the_json_lists_every_gpu_with_null_for_what_is_unknown():
    report = json.loads(doctor.format_json(machine(inventory=FOUR), []))
    assert report["gpus"][3] == {
        "nvml_index": 3,
        "uuid": "GPU-3",
        "name": "H200",
        "total_bytes": 140 * GIB,
        "free_bytes": 9,
        "mig": None,
        "fault": None,
    }
    assert json.loads(doctor.format_json(machine(), []))["gpus"] is None
