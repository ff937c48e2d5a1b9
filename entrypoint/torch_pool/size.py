"""Sizes as people write them: 20GiB, 512MiB, 64KiB."""

_UNIT_BYTES = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def size_bytes(text: str) -> int | None:
    """Bytes of a size; None for anything else. GB and G are not taken: nobody agrees on what they are."""
    number, unit = text[:-3], text[-3:]
    if unit not in _UNIT_BYTES or not _is_whole(number) or number == "0":
        return None
    return int(number) * _UNIT_BYTES[unit]


def is_memory_cap(text: str) -> bool:
    """Whether the text is a share of a GPU's memory between 0 and 1, or a size."""
    whole, point, rest = text.partition(".")
    is_share = whole == "0" and point == "." and rest.isascii() and rest.isdigit() and rest.strip("0") != ""
    return is_share or size_bytes(text) is not None


def format_size(size_bytes: int) -> str:
    """A size in the largest unit that does not round it to less than 1."""
    for unit, unit_bytes in reversed(_UNIT_BYTES.items()):
        if size_bytes >= unit_bytes:
            return f"{size_bytes / unit_bytes:.4g} {unit}"
    return f"{size_bytes} bytes"


def _is_whole(text: str) -> bool:
    return text.isascii() and text.isdigit() and (text == "0" or text[0] != "0") and len(text) < 10
