import subprocess
import sys
from pathlib import Path

import pytest
from torch_pool import gpu
from torch_pool.child import Failure
from torch_pool.driver import Device, Probe
from torch_pool.finding import Finding
from torch_pool.gpu import (
    Access,
    enforce,
    find_fault,
    inspect,
    judge_nvml,
    parse_driver_version,
    pool_fallback,
    with_probe,
)

ROOTS = Path(__file__).parent.parent / "data" / "roots"
GOOD = Access("nvidia", (0,), "580.159.04", "580.159.04")
COMPAT = {"LD_LIBRARY_PATH": "/usr/local/cuda/compat"}


def look(root, **environ):
    return inspect(environ, str(ROOTS / root))


def why(access):
    fault = find_fault(access)
    return [(fault.code, fault.message)] if fault else []


def probed(*devices, platform="nvidia"):
    listed = tuple(Device(n, name, pools, vmm) for n, (name, pools, vmm) in enumerate(devices))
    return GOOD._replace(platform=platform, probe=Probe(12080, listed))


def test_a_look_imports_no_more_than_the_start_path_allows():
    program = (
        "import os, sys; sys.path.insert(0, sys.argv[1]); before = set(sys.modules);"
        "from torch_pool import gpu; gpu.find_fault(gpu.inspect({}));"
        "print(*(m for m in set(sys.modules) - before if not m.startswith('torch_pool')))"
    )
    package = str(Path(gpu.__file__).parents[1])
    command = [sys.executable, "-I", "-S", "-c", program, package]
    seen = subprocess.run(command, check=True, capture_output=True)
    assert seen.stdout.split() == []


def test_a_container_with_gpus_is_described_without_a_library():
    assert look("h200", NVIDIA_DRIVER_CAPABILITIES="compute,utility") == Access(
        platform="nvidia",
        nodes=(0, 1),
        driver="580.159.04",
        libcuda="580.159.04",
        capabilities="compute,utility",
    )


@pytest.mark.parametrize(
    ("root", "platform"), [("h200", "nvidia"), ("wsl2", "wsl2"), ("tegra", "tegra"), ("bare", None)]
)
def test_the_platform_is_recognised_and_usable(root, platform):
    access = look(root)
    assert (access.platform, access.usable) == (platform, platform is not None)


def test_void_is_how_cdi_passes_a_gpu_and_not_the_absence_of_one():
    access = look("h200", NVIDIA_VISIBLE_DEVICES="void")
    assert (access.by_cdi, access.usable) == (True, True)
    assert look("bare", NVIDIA_VISIBLE_DEVICES="void").by_cdi is False


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 2023", "535.104.05"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release", "580.159.04"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  570.86.15  Release", "570.86.15"),
        ("GCC version:  gcc version 12.3.0", None),
        ("", None),
    ],
)
def test_both_spellings_of_the_driver_version_are_read(line, version):
    assert parse_driver_version(line) == version


@pytest.mark.parametrize(
    ("root", "environ", "code", "words"),
    [
        ("bare", {}, "gpu-no-driver", "no NVIDIA driver is to be seen; use a host that has one"),
        ("not-passed", {}, "gpu-not-passed", "driver 535.104.05, but the container was given no device"),
        ("not-passed", {}, "gpu-not-passed", "--gpus all (docker)"),
        ("no-libcuda", {}, "gpu-no-libcuda", "NVIDIA_DRIVER_CAPABILITIES=compute,utility (it is unset)"),
        ("old-driver", {}, "gpu-old-driver", "driver 470.223.02 is too old: CUDA 12 needs >= 525"),
        ("h200", {"CUDA_VISIBLE_DEVICES": ""}, "gpu-hidden", "CUDA_VISIBLE_DEVICES='' hides every GPU"),
        ("h200", {"CUDA_VISIBLE_DEVICES": "-1"}, "gpu-hidden", "'-1' ends the list; unset it"),
        ("h200", {"CUDA_VISIBLE_DEVICES": "void"}, "gpu-hidden", "'void' is no index"),
    ],
)
def test_the_reason_why_no_gpu_is_usable_is_the_one_that_fits(root, environ, code, words):
    ((found, message),) = why(look(root, **environ))
    assert found == code
    assert words in message


@pytest.mark.parametrize("driver", ["525.60.13", "535.104.05", "551.78", "570.86.15", "580.159.04"])
def test_a_driver_from_525_on_is_good_enough_for_cuda_12(driver):
    assert Access("nvidia", (0,), driver, driver).usable


def test_the_floor_is_that_of_the_images_cuda():
    assert inspect({}, str(ROOTS / "old-driver"), cuda_major=11).usable
    assert not Access("nvidia", (0,), "551.78", "551.78", cuda_major=13).usable


def test_forward_compatibility_makes_up_for_an_old_driver():
    assert Access("nvidia", (0,), "470.223.02", "550.54.15").usable


@pytest.mark.parametrize(
    ("policy", "severities"), [("wanted", ["warn"]), ("required", ["refuse"]), ("none", [])]
)
def test_the_policy_decides_how_grave_a_missing_gpu_is(policy, severities):
    findings = enforce([find_fault(look("bare"))], policy)
    assert [finding.severity for finding in findings] == severities


def test_nothing_is_said_where_a_gpu_is_usable():
    assert find_fault(look("h200")) is None


def test_each_reason_is_given_once_and_only_gpu_findings_are_graded():
    hidden = Finding("warn", "gpu-hidden", None, "first")
    other = Finding("warn", "devices-dropped", None, "other")
    graded = enforce([hidden, other, hidden._replace(message="second")], "required")
    assert graded == (hidden._replace(severity="refuse"), other)


@pytest.mark.parametrize(
    ("probe", "code", "words"),
    [
        (Failure("refused", 803, "cuInit"), "gpu-cuda-803", "(kernel driver 550.54.15, libcuda 535.104.05)"),
        (Failure("refused", 804, "cuInit"), "gpu-cuda-804", "forward compatibility does not work"),
        (Failure("refused", 999, "cuInit"), "gpu-cuda-999", "recreate the container"),
        (Failure("refused", 100, "cuInit"), "gpu-cuda-100", "CUDA sees no device"),
        (Probe(11040, ()), "gpu-cuda-35", "the driver is too old for the CUDA of this image"),
        (Failure("library-missing", None, "no"), "gpu-no-libcuda", "libcuda.so.1 cannot be loaded"),
    ],
)
def test_what_cuda_itself_says_is_told_apart(probe, code, words):
    ((found, message),) = why(look("compat", **COMPAT)._replace(probe=probe))
    assert found == code
    assert words in message


@pytest.mark.parametrize("kind", ["hung", "crashed", "symbol-missing"])
def test_a_probe_without_an_answer_does_not_say_that_there_is_no_gpu(kind):
    assert GOOD._replace(probe=Failure(kind, None, "")).usable


def test_nvml_that_lost_its_gpus_is_a_reason_and_a_missing_nvml_is_none():
    (lost,) = judge_nvml(Failure("refused", 999, "nvmlInit_v2"))
    (silent,) = judge_nvml(Failure("library-missing", None, "no such file"))
    assert (lost.severity, lost.code, silent.severity) == ("warn", "gpu-nvml-999", "note")
    assert "recreate the container" in lost.message


@pytest.mark.parametrize(
    ("access", "fallback", "word"),
    [
        (probed(("H200", True, True)), "expandable", None),
        (probed(("GRID", False, True)), "expandable", "expandable"),
        (probed(("GRID", False, False)), "expandable", "native"),
        (probed(("GRID", False, True)), "native", "native"),
        (probed(("GRID", False, True)), "none", None),
        (probed(("GRID", False, True)), None, None),
        (probed(("GRID", False, True), platform="wsl2"), "expandable", "native"),
        (probed(("H200", True, True), ("GRID", False, True)), "expandable", "expandable"),
        (probed(("Unknown", None, None)), "expandable", None),
    ],
)
def test_a_device_without_memory_pools_falls_back_as_the_profile_says(access, fallback, word):
    assert pool_fallback(access, fallback, {})[0] == word


def test_the_fallback_names_the_device_and_the_outcome():
    access = probed(("H200", True, True), ("GRID", False, True))
    message = (
        "GPU 1 (GRID) has no memory pools, which cudaMallocAsync needs: the allocator is expandable instead"
    )
    assert pool_fallback(access, "expandable", {})[1] == (Finding("warn", "no-memory-pools", None, message),)


@pytest.mark.parametrize("kind", ["hung", "crashed"])
def test_a_probe_without_an_answer_keeps_the_allocator_with_a_warning(kind):
    access = GOOD._replace(probe=Failure(kind, None, "no answer within 2 s"))
    word, (finding,) = pool_fallback(access, "expandable", {})
    assert (word, finding.severity, finding.code) == (None, "warn", "probe-failed")


@pytest.mark.parametrize("access", [look("bare"), look("not-passed"), look("h200", CUDA_VISIBLE_DEVICES="")])
def test_nothing_is_probed_where_no_gpu_is_usable(access):
    assert with_probe(access, {}) is access
    assert pool_fallback(access, "expandable", {}) == (None, ())


def test_the_probe_can_be_switched_off():
    assert pool_fallback(GOOD, "expandable", {"TORCH_POOL_PROBE": "0"}) == (None, ())


def test_a_fault_that_the_fallback_itself_finds_is_reported_there():
    """This machine has no libcuda, so that the real probe of a container that seems to have one fails."""
    word, (finding,) = pool_fallback(GOOD, "expandable", {"CUDA_VISIBLE_DEVICES": ""})
    assert word is None
    assert finding.code in ("gpu-no-libcuda", "gpu-cuda-100")
