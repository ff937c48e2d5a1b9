"""The calls of libnvidia-ml that an inventory needs. They run in a child process, on behalf of nvml."""

import ctypes

from torch_pool.child import Failure
from torch_pool.nvml import error_text
from torch_pool.record import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any


class _Refused(Exception):  # noqa: N818 - it never leaves this module
    def __init__(self, function: str, code: int) -> None:
        super().__init__(f"{function}: {error_text(code)}")
        self.function = function
        self.code = code


def read_inventory(library: str) -> "Any":
    """Driver version and the fields of every Gpu, as plain tuples; or the Failure."""
    try:
        nvml = ctypes.CDLL(library)
    except OSError as error:
        return Failure("library-missing", None, str(error))
    try:
        _call(nvml, "nvmlInit_v2")
        count = _number(nvml, "nvmlDeviceGetCount_v2")
        driver = _text(nvml, "nvmlSystemGetDriverVersion")
        return driver, tuple(_read_gpu(nvml, index) for index in range(count))
    except _Refused as refused:
        return Failure("refused", refused.code, refused.function)
    except AttributeError as missing:
        return Failure("symbol-missing", None, str(missing))


def _read_gpu(nvml: ctypes.CDLL, index: int) -> "tuple[Any, ...]":
    """The fields of a Gpu. A GPU that has fallen off the bus must not hide the others."""
    try:
        gpu = _handle(nvml, "nvmlDeviceGetHandleByIndex_v2", index)
        uuid, name = _text(nvml, "nvmlDeviceGetUUID", gpu), _text(nvml, "nvmlDeviceGetName", gpu)
    except _Refused as refused:
        return (index, None, None, None, None, None, str(refused))
    return (index, uuid, name, *_memory(nvml, gpu), _read_migs(nvml, gpu), None)


def _read_migs(nvml: ctypes.CDLL, gpu: ctypes.c_void_p) -> "tuple[Any, ...] | None":
    pending = ctypes.c_uint()
    try:
        if not _number(nvml, "nvmlDeviceGetMigMode", gpu, after=(ctypes.byref(pending),)):
            return None
        places = range(_number(nvml, "nvmlDeviceGetMaxMigDeviceCount", gpu))
    except (_Refused, AttributeError):
        # GPUs without MIG refuse; drivers before 450 do not know the call.
        return None
    return tuple(mig for place in places if (mig := _read_mig(nvml, gpu, place)) is not None)


def _read_mig(nvml: ctypes.CDLL, gpu: ctypes.c_void_p, place: int) -> "tuple[Any, ...] | None":
    try:
        mig = _handle(nvml, "nvmlDeviceGetMigDeviceHandleByIndex", gpu, place)
        uuid = _text(nvml, "nvmlDeviceGetUUID", mig)
    except _Refused:
        # An empty place, or a device that belongs to another container.
        return None
    ids = [_number_or_none(nvml, f"nvmlDeviceGet{kind}InstanceId", mig) for kind in ("Gpu", "Compute")]
    return (uuid, *ids, *_memory(nvml, mig))


def _memory(nvml: ctypes.CDLL, device: ctypes.c_void_p) -> tuple[int | None, int | None]:
    """Total and free bytes; the parent of MIG devices answers an unprivileged caller with no permission."""
    total_free_used = (ctypes.c_ulonglong * 3)()
    try:
        _call(nvml, "nvmlDeviceGetMemoryInfo", device, total_free_used)
    except _Refused:
        return None, None
    return total_free_used[0], total_free_used[1]


def _call(nvml: ctypes.CDLL, function: str, *arguments: object) -> None:
    code = getattr(nvml, function)(*arguments)
    if code:
        raise _Refused(function, code)


def _handle(nvml: ctypes.CDLL, function: str, *arguments: object) -> ctypes.c_void_p:
    handle = ctypes.c_void_p()
    _call(nvml, function, *arguments, ctypes.byref(handle))
    return handle


def _number(nvml: ctypes.CDLL, function: str, *before: object, after: tuple[object, ...] = ()) -> int:
    number = ctypes.c_uint()
    _call(nvml, function, *before, ctypes.byref(number), *after)
    return number.value


def _number_or_none(nvml: ctypes.CDLL, function: str, device: ctypes.c_void_p) -> int | None:
    try:
        return _number(nvml, function, device)
    except (_Refused, AttributeError):
        return None


def _text(nvml: ctypes.CDLL, function: str, *before: object) -> str:
    # nvml.h asks for 96 bytes at most, for the name and the UUID of a MIG device.
    buffer = ctypes.create_string_buffer(96)
    _call(nvml, function, *before, buffer, len(buffer))
    return buffer.value.decode(errors="replace")
