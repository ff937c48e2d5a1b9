import time

import pytest
from torch_pool import nvml
from torch_pool.child import Failure
from torch_pool.nvml import Gpu, Inventory, Mig

from tests.entrypoint.fake_library import build_library

GIB = 1 << 30


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return build_library("nvml", tmp_path_factory.mktemp("nvml"))


def test_all_gpus_are_listed_with_their_memory(library, monkeypatch):
    monkeypatch.setenv("FAKE_GPUS", f"GPU-a|Big|{24 * GIB}|{20 * GIB}\nGPU-b|Small|{8 * GIB}|{8 * GIB}")
    assert nvml.query(library=library) == Inventory(
        "550.54.15",
        (Gpu(0, "GPU-a", "Big", 24 * GIB, 20 * GIB), Gpu(1, "GPU-b", "Small", 8 * GIB, 8 * GIB)),
    )


def test_mig_devices_are_listed_under_their_gpu_whose_own_memory_is_unknown(library, monkeypatch):
    monkeypatch.setenv("FAKE_GPUS", "GPU-a|H200|9|9|mig\nmig MIG-1|5|4|1|0\nmig MIG-2|5|3|2|0")
    migs = (Mig("MIG-1", 1, 0, 5, 4), Mig("MIG-2", 2, 0, 5, 3))
    assert nvml.query(library=library) == Inventory("550.54.15", (Gpu(0, "GPU-a", "H200", None, None, migs),))


def test_a_lost_gpu_does_not_hide_the_others(library, monkeypatch):
    monkeypatch.setenv("FAKE_GPUS", "lost\nGPU-b|B|8|8")
    lost = Gpu(0, fault="nvmlDeviceGetHandleByIndex_v2: GPU is lost, 15")
    assert nvml.query(library=library).gpus == (lost, Gpu(1, "GPU-b", "B", 8, 8))


def test_no_gpu_is_an_empty_list_and_no_failure(library):
    assert nvml.query(library=library) == Inventory("550.54.15", ())


def test_cuda_visible_devices_does_not_change_the_list(library, monkeypatch):
    monkeypatch.setenv("FAKE_GPUS", "GPU-a|A|1|1\nGPU-b|B|1|1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert [gpu.nvml_index for gpu in nvml.query(library=library).gpus] == [0, 1]


def test_a_refusal_keeps_the_number_of_nvml(library, monkeypatch):
    monkeypatch.setenv("FAKE_INIT", "999")
    failure = nvml.query(library=library)
    assert failure == Failure("refused", 999, "nvmlInit_v2")
    assert nvml.describe(failure) == "NVML refused (nvmlInit_v2: unknown error, 999)"


def test_a_library_that_is_not_there_is_told_from_one_that_lacks_a_symbol(tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_GPUS", "GPU-a|A|1|1")
    absent = nvml.query(library=str(tmp_path / "absent.so"))
    lacking = nvml.query(library=build_library("nvml", tmp_path, "WITHOUT_UUID"))
    assert (absent.kind, lacking.kind) == ("library-missing", "symbol-missing")
    assert "nvmlDeviceGetUUID" in lacking.detail


def test_a_library_that_hangs_does_not_stop_the_start(library, monkeypatch):
    monkeypatch.setenv("FAKE_HANG", "1")
    start = time.monotonic()
    assert nvml.query(limit_seconds=0.2, library=library).kind == "hung"
    assert time.monotonic() - start < 1
