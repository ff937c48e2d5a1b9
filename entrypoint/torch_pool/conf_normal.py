"""The conf that we would export instead: same effect, nothing accidental in it."""

from torch_pool.conf_keys import MIB, UNLIMITED
from torch_pool.record import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch_pool.conf_keys import Value
    from torch_pool.conf_parser import Option, Parse


def normalise(parse: "Parse") -> str:
    """No white space, `backend` first, every key once, no trailing comma, no key that async ignores."""
    asynchronous = parse.backend == "cudaMallocAsync"
    last = {option.key: option for option in parse.options}
    kept = [o for o in last.values() if not (asynchronous and o.key.scope == "native")]
    kept.sort(key=lambda option: option.key.scope != "backend")
    return ",".join(f"{o.key.name}:{text}" for o in kept if (text := _format_value(o)))


def _format_value(option: "Option") -> str:
    value = option.value
    if isinstance(value, tuple):
        return _format_roundup(value)
    if option.key.kind in {"split", "segment"}:
        return _format_mebibytes(value)
    return repr(value) if isinstance(value, float) else str(value)


def _format_mebibytes(size_bytes: "Value") -> str:
    """-1 is torch's only spelling of "unlimited" for a key that stands in the conf."""
    mebibytes = int(size_bytes) // MIB if isinstance(size_bytes, int) else 0
    return "-1" if mebibytes == UNLIMITED // MIB else str(mebibytes)


def _format_roundup(slots: "Iterable[int]") -> str:
    """What the slots came to, in a form that every torch reads alike; nothing if rounding is off everywhere.

    The slot where the last run starts is named as well, because up to torch 2.9 `>` would overwrite the one
    before it.
    """
    divisions = list(slots)
    if not any(divisions):
        return ""
    if len(set(divisions)) == 1:
        return str(divisions[0])
    first = _run_length(divisions) - 1
    tail = len(divisions) - _run_length(divisions[::-1])
    named = [slot for slot in range(first, tail + 1) if divisions[slot] or slot == first]
    items = [f"{1 << slot}:{divisions[slot]}" for slot in named]
    if divisions[tail]:
        items.append(f">:{divisions[tail]}")
    return f"[{','.join(items)}]"


def _run_length(divisions: list[int]) -> int:
    return next((n for n, value in enumerate(divisions) if value != divisions[0]), len(divisions))
