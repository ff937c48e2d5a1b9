"""The calls of libcuda that a probe needs. They run in a child process, on behalf of driver."""

import ctypes
import os

from torch_pool.child import Failure
from torch_pool.record import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_MEMORY_POOLS = 115  # CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED
_VIRTUAL_MEMORY = 102  # CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
_READ_AT_INIT = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")


def read_devices(environ: "Mapping[str, str]", library: str) -> "Any":
    """Version and the fields of every Device, as plain tuples; or the Failure."""
    # os.environ writes through to the C environment, where libcuda reads at cuInit.
    for name in _READ_AT_INIT:
        os.environ.pop(name, None)
        if name in environ:
            os.environ[name] = environ[name]
    try:
        cuda = ctypes.CDLL(library)
    except OSError as error:
        return Failure("library-missing", None, str(error))
    try:
        return _read(cuda)
    except AttributeError as missing:
        return Failure("symbol-missing", None, str(missing))


def _read(cuda: ctypes.CDLL) -> "Any":
    version, count = ctypes.c_int(), ctypes.c_int()
    for function, arguments in (
        ("cuDriverGetVersion", (ctypes.byref(version),)),
        ("cuInit", (0,)),
        ("cuDeviceGetCount", (ctypes.byref(count),)),
    ):
        code = getattr(cuda, function)(*arguments)
        if code:
            return Failure("refused", code, function)
    return version.value, tuple(_read_device(cuda, ordinal) for ordinal in range(count.value))


def _read_device(cuda: ctypes.CDLL, ordinal: int) -> "tuple[Any, ...]":
    device, name = ctypes.c_int(ordinal), ctypes.create_string_buffer(256)
    cuda.cuDeviceGet(ctypes.byref(device), ordinal)
    cuda.cuDeviceGetName(name, len(name), device)
    attributes = [_read_attribute(cuda, attribute, device) for attribute in (_MEMORY_POOLS, _VIRTUAL_MEMORY)]
    return (ordinal, name.value.decode(errors="replace"), *attributes)


def _read_attribute(cuda: ctypes.CDLL, attribute: int, device: ctypes.c_int) -> bool | None:
    value = ctypes.c_int()
    code = cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
    return bool(value.value) if code == 0 else None
