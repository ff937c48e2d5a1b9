import ctypes
from pathlib import Path

import pytest
from torch_pool.libraries import Library, find_library, library_path, parse_cache, version_of

ROOTS = Path(__file__).parent.parent / "data" / "roots"


def test_the_library_of_the_usual_places_is_found_with_its_version():
    found = find_library("libcuda.so.1", {}, str(ROOTS / "h200"))
    assert found == Library("/usr/lib/x86_64-linux-gnu/libcuda.so.1", "580.159.04")


def test_the_library_path_comes_first_as_for_the_loader():
    environ = {"LD_LIBRARY_PATH": "/absent:/usr/local/cuda/compat"}
    found = find_library("libcuda.so.1", environ, str(ROOTS / "compat"))
    assert found == Library("/usr/local/cuda/compat/libcuda.so.1", "535.104.05")


def test_a_library_that_is_nowhere_is_none():
    assert find_library("libcuda.so.1", {}, str(ROOTS / "bare")) is None


def test_the_cache_of_this_machine_gives_a_library_that_loads():
    cache = Path("/etc/ld.so.cache").read_bytes()
    (path, *_) = parse_cache(cache, "libc.so.6")
    assert Path(path).name == "libc.so.6"
    assert ctypes.CDLL(find_library("libc.so.6", {}).path).getpid() > 0


@pytest.mark.parametrize(
    ("name", "version"),
    [("libcuda.so.550.54.15", "550.54.15"), ("libcudnn.so.8.9.7", "8.9.7"), ("libcuda.so.1", None)],
)
def test_a_bare_abi_number_tells_no_version(name, version):
    assert version_of(f"/lib/{name}") == version


@pytest.mark.parametrize(
    ("value", "directories"),
    [("", ()), ("/a", ("/a",)), ("/a::/b", ("/a", ".", "/b")), ("/a;/b", ("/a", "/b"))],
)
def test_an_empty_element_of_the_library_path_is_the_working_directory(value, directories):
    assert library_path({"LD_LIBRARY_PATH": value}) == directories
