"""Reading one value of a conf as torch does: what it comes to, or torch's own words of refusal.

Functions that return a pair say in its second half whether the text was plain: a number and nothing else.
"""

from torch_pool.conf_keys import (
    DIVISIONS_MINOR,
    LIST_ZERO_MINOR,
    MIB,
    ROUNDUP_SLOTS,
    TOKENIZER_MINOR,
    UNLIMITED,
    Key,
)
from torch_pool.conf_number import stod, stoi, unsigned

_DISAGREE = "Allocator backend parsed at runtime != allocator backend parsed at load time"
_ASSERT_2_6 = (
    'config[i] == get()->name() INTERNAL ASSERT FAILED at "/pytorch/c10/cuda/CUDAAllocatorConfig.cpp":250, '
    "please report a bug to PyTorch. "
)
_MAX_REGISTER_THREADS = 128
_LEAST_SEGMENT_MIB = 10


class TorchError(Exception):
    """torch refuses here; the message is torch's."""


def missing_value(key: Key) -> str:
    """The words of torch 2.0 to 2.9 for a key whose value is missing."""
    if key.kind == "backend":
        return "Error parsing backend value"
    if key.kind == "switch" and key.scope == "native":
        return f"Expected a single True/False argument for {key.name}"
    return f"Error, expecting {key.name} value"


def read_backend(text: str, loaded: str, minor: int) -> str:
    """`backend`, which must be the one that was `loaded`. Raises TorchError."""
    if text not in {"native", "cudaMallocAsync"}:
        raise TorchError("Unknown allocator backend, options are native and cudaMallocAsync")
    if text == loaded:
        return text
    if minor >= TOKENIZER_MINOR:
        raise TorchError(f"{_DISAGREE}, {text} != {loaded}")
    raise TorchError((_ASSERT_2_6 if minor == 6 else "") + _DISAGREE)


def read_switch(key: Key, text: str, index: int, minor: int) -> bool:
    """True or False, so spelled; `index` is the place of the token. Raises TorchError."""
    if text in {"True", "False"}:
        return text == "True"
    if minor >= TOKENIZER_MINOR:
        raise TorchError(f"Expected 'True' or 'False' at index {index} in ConfigTokenizer but got '{text}'")
    raise TorchError(f"Expected a single True/False argument for {key.name}")


def read_number(key: Key, text: str, segment_bytes: int, minor: int) -> tuple[int | float, bool]:
    """The value of a key that takes one number. Raises TorchError and BadNumberError."""
    if key.kind == "ratio":
        return _ratio(text, minor)
    if key.kind == "fraction":
        return _fraction(key, text)
    if key.kind in {"split", "segment"}:
        return _size(key, text, segment_bytes, minor)
    return _count(key, text, minor)


def _ratio(text: str, minor: int) -> tuple[float, bool]:
    """Between 0 and 1, both excluded."""
    value, plain = stod(text)
    if 0 < value < 1:
        return value, plain
    if minor >= TOKENIZER_MINOR:
        raise TorchError("garbage_collect_threshold is invalid, set it in (0.0, 1.0)")
    fault = "big" if value >= 1 else "small"  # not a number counts as too small
    raise TorchError(f"garbage_collect_threshold too {fault}, set it 0.0~1.0")


def _fraction(key: Key, text: str) -> tuple[float, bool]:
    value, plain = stod(text)
    if not 0 <= value <= 1:
        raise TorchError(f"{key.name} is invalid, set it in [0.0, 1.0]")
    return value, plain


def _size(key: Key, text: str, segment_bytes: int, minor: int) -> tuple[int, bool]:
    """In bytes; written in MiB."""
    mebibytes, plain = _size_t(text, minor)
    least = segment_bytes // MIB
    if key.kind == "segment" and mebibytes <= _LEAST_SEGMENT_MIB:
        raise TorchError(f"CachingAllocator option {key.name} must be > {_LEAST_SEGMENT_MIB} MB")
    if key.kind == "split" and minor >= TOKENIZER_MINOR and mebibytes < least:
        raise TorchError(f"CachingAllocator option {key.name} too small, must be >= {least}")
    if key.kind == "split" and minor < TOKENIZER_MINOR and mebibytes <= least:
        raise TorchError(f"CachingAllocator option {key.name} too small, must be > {least}")
    return min(mebibytes, UNLIMITED // MIB) * MIB, plain


def _count(key: Key, text: str, minor: int) -> tuple[int, bool]:
    value, plain = _size_t(text, minor)
    got = f", got {value}" if minor >= TOKENIZER_MINOR else ""
    if key.kind == "positive" and value == 0:
        raise TorchError("Pinned reserve segment size has to be greater than 0")
    if key.kind == "threads" and not _is_power_of_2(value):
        raise TorchError(f"Number of register threads has to be power of 2{got}")
    if key.kind == "threads" and value > _MAX_REGISTER_THREADS:
        most = _MAX_REGISTER_THREADS
        raise TorchError(f"Number of register threads should be less than or equal to {most}{got}")
    return value, plain


def read_divisions(text: str, minor: int) -> tuple[int, bool]:
    """The divisions for all sizes. Raises TorchError and BadNumberError."""
    value, plain = _size_t(text, minor)
    if not _is_power_of_2(value):
        raise TorchError(_bad_divisions(minor))
    return value, plain


def read_listed_divisions(text: str, minor: int) -> tuple[int, bool]:
    """The divisions for one entry of a list. Raises TorchError and BadNumberError."""
    value, plain = _size_t(text, minor)
    if _is_power_of_2(value) or (value == 0 and minor >= LIST_ZERO_MINOR):
        return value, plain
    raise TorchError(_bad_divisions(minor) + (" or 0 to disable roundup" if minor >= LIST_ZERO_MINOR else ""))


def read_slot(text: str, minor: int) -> tuple[int, bool]:
    """The slot of a list entry's size in MiB. Raises TorchError and BadNumberError."""
    value, plain = unsigned(text, "stoull" if minor >= TOKENIZER_MINOR else "stoul")
    if not _is_power_of_2(value):
        raise TorchError("For roundups, the intervals have to be power of 2")
    return min(value.bit_length() - 1, ROUNDUP_SLOTS - 1), plain


def _size_t(text: str, minor: int) -> tuple[int, bool]:
    """A minus sign wraps to a huge number. Torch 2.0 to 2.9 read an int first, 2.10 reads 64 bits."""
    if minor >= TOKENIZER_MINOR:
        return unsigned(text, "stoull")
    value, plain = stoi(text)
    return value % (1 << 64), plain


def _bad_divisions(minor: int) -> str:
    return f"For roundups, the {'divisions' if minor >= DIVISIONS_MINOR else 'divisons'} has to be power of 2"


def _is_power_of_2(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0
