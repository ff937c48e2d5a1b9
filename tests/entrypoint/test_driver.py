import pytest
from torch_pool import driver
from torch_pool.child import Failure
from torch_pool.driver import Device, Probe

from tests.entrypoint.fake_library import build_library


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return build_library("cuda", tmp_path_factory.mktemp("cuda"))


def test_each_device_tells_pools_and_virtual_memory(library, monkeypatch):
    monkeypatch.setenv("FAKE_CUDA", "H200|1|1\nGRID|0|0\nOld|-1|-1")
    assert driver.probe({}, library=library) == Probe(
        12040,
        (Device(0, "H200", True, True), Device(1, "GRID", False, False), Device(2, "Old", None, None)),
    )


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (100, "CUDA sees no device"),
        (101, "listed twice"),
        (802, "fabricmanager"),
        (803, "kernel driver and libcuda do not match"),
        (804, "forward compatibility"),
        (999, "recreate the container"),
        (12345, "CUDA error 12345"),
    ],
)
def test_errors_of_cuinit_are_told_apart_with_what_to_do(library, monkeypatch, code, words):
    monkeypatch.setenv("FAKE_CUDA_INIT", str(code))
    failure = driver.probe({}, library=library)
    assert failure == Failure("refused", code, "cuInit")
    assert words in driver.describe(failure)


def test_the_devices_are_those_of_the_given_environment_not_of_this_process(library, monkeypatch):
    monkeypatch.setenv("FAKE_CUDA", "H200|1|1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert isinstance(driver.probe({}, library=library), Probe)
    assert driver.probe({"CUDA_VISIBLE_DEVICES": ""}, library=library).code == 100


@pytest.mark.parametrize(("variable", "kind"), [("FAKE_HANG", "hung"), ("FAKE_CRASH", "crashed")])
def test_a_library_that_hangs_or_crashes_leaves_the_start_alone(library, monkeypatch, variable, kind):
    monkeypatch.setenv(variable, "1")
    assert driver.probe({}, limit_seconds=0.3, library=library).kind == kind


def test_a_library_that_is_not_there_is_told_from_one_that_lacks_a_symbol(tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_CUDA", "H200|1|1")
    assert driver.probe({}, library=str(tmp_path / "absent.so")).kind == "library-missing"
    lacking = driver.probe({}, library=build_library("cuda", tmp_path, "WITHOUT_COUNT"))
    assert (lacking.kind, "cuDeviceGetCount" in lacking.detail) == ("symbol-missing", True)
