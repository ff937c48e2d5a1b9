"""What to do about a conf that torch refuses, told by torch's own words."""

from torch_pool.conf_keys import KEYS, Key

_BACKEND = "write exactly backend:native or backend:cudaMallocAsync"
_SWITCH = "write exactly True or False"

_REMEDIES = (
    ("expected ,", "separate options by one comma and nothing else"),
    ("expected :", "write key:value with a colon"),
    ("Allocator backend parsed at runtime", "write backend:NAME first, once and without blanks"),
    ("Unknown allocator backend", _BACKEND),
    ("Error parsing backend value", _BACKEND),
    ("Expected a single True/False", _SWITCH),
    ("Expected 'True' or 'False'", _SWITCH),
    ("garbage_collect_threshold", "give a fraction between 0 and 1, such as 0.8"),
    ("per_process_memory_fraction", "give a fraction from 0 to 1, such as 0.5"),
    ("too small", "give a larger whole number of MiB, or leave the key out"),
    ("large_segment_size_mb", "give more than 10 MiB, or leave the key out"),
    ("register threads", "give a power of 2 up to 128"),
    ("For roundups, the div", "give a power of 2, such as 8"),
    ("For roundups, the int", "give sizes in MiB that are powers of 2, such as [256:2,512:4]"),
    ("closing bracket", "close the list with ]"),
    ("Index out of bounds", "give every key a value, as in key:value"),
    ("value", "give the key a value, as in key:value"),
    ("sto", "give a plain number that is in range"),
)
"""Words in torch's message and the remedy; the first that fits counts."""


def remedy_for(error: str, minor: int) -> str:
    """The remedy for an `error` in the words of torch 2.`minor`."""
    if error.startswith("Unrecognized key"):
        return _remedy_for_name(error.partition("'")[2].rpartition("'")[0], minor)
    if error.startswith("Unrecognized"):
        return _remedy_for_name(error.partition(": ")[2], minor)
    return next((remedy for words, remedy in _REMEDIES if words in error), "correct the value or remove it")


def _remedy_for_name(name: str, minor: int) -> str:
    if name in {"", ",", ":", "[", "]"}:
        return "remove the empty item"
    if "=" in name:
        return "write key:value with a colon instead of ="
    near = _nearest_key(name)
    if near is None:
        known = ", ".join(key.name for key in KEYS if key.since <= minor)
        return f"remove it, or use one of {known}"
    if near.since > minor:
        return f"leave {near.name} out, it needs torch 2.{near.since}"
    return f"write the key as {near.name}"


def _nearest_key(name: str) -> Key | None:
    plain = name.strip("\"' \t\r\n").lower().replace("-", "_")
    return next((k for k in KEYS if plain in {k.name, k.alias, k.name.removesuffix("_mb")}), None)
