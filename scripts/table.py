"""Tables in YAML that become frozen records, each value of the type that the record declares."""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import yaml
from torch_pool.refusal import Refusal

T = TypeVar("T")
_LISTS = (tuple, Sequence)
_TEXT, _MERGE = "tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"


class _Loader(yaml.SafeLoader):
    """YAML whose keys are text and given once: of two, YAML takes the last and says nothing."""

    def compose_mapping_node(self, anchor: dict[Any, yaml.Node]) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            if key.tag not in {_TEXT, _MERGE}:
                raise yaml.MarkedYAMLError(problem="a key that is no text", problem_mark=key.start_mark)
            if key.value in seen:
                problem = f"the key {key.value} is given twice"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
            seen.add(key.value)
        return node


def read_table(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file.

    Raises:
        Refusal: the file is missing, is not YAML, gives a key twice, or holds no mapping.
    """
    try:
        loader = _Loader(path.read_text("utf-8"))
        values = loader.get_single_data()
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split()).replace(' in "<unicode string>",', ",")
        raise Refusal(f"{path} cannot be read: {reason}") from error
    if not isinstance(values, dict):
        raise Refusal(f"{path} holds no mapping of keys to values")
    return values


def to_record(record: type[T], values: dict[str, Any], place: str) -> T:
    """A frozen dataclass from a mapping; lists become tuples.

    Raises:
        Refusal: a key is missing or unknown, or a value has another type than its field; `place` says where.
    """
    known = {field.name for field in fields(record)}  # type: ignore[arg-type]  # T is always a dataclass
    needed = {
        field.name
        for field in fields(record)  # type: ignore[arg-type]  # T is always a dataclass
        if field.default is MISSING
    }
    for problem, names in (("no known key", values.keys() - known), ("missing", needed - values.keys())):
        if names:
            raise Refusal(f"{place}: {', '.join(sorted(names))} {problem}; known: {', '.join(sorted(known))}")
    types = get_type_hints(record)
    for key, value in values.items():
        if not _fits(value, types[key]):
            raise Refusal(f"{place}: {key} is {value!r}, but must be {_words(types[key])}")
    return record(
        **{key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
    )


def _fits(value: Any, wanted: Any) -> bool:
    """Tell whether a value, as YAML or JSON gives it, is of a field's type."""
    kind, parts = get_origin(wanted), get_args(wanted)
    if kind in _LISTS:
        return isinstance(value, list | tuple) and all(_fits(item, parts[0]) for item in value)
    if kind is Mapping:
        return isinstance(value, dict) and all(_fits(item, parts[1]) for item in value.values())
    if parts:
        return any(_fits(value, part) for part in parts)
    # Not isinstance: true is no number.
    return type(value) is wanted


def _words(wanted: Any) -> str:
    kind, parts = get_origin(wanted), get_args(wanted)
    if kind in _LISTS:
        return f"a list, each item {_words(parts[0])}"
    if kind is Mapping:
        return f"a mapping, each value {_words(parts[1])}"
    if parts:
        return " or ".join(_words(part) for part in parts)
    names = {str: "text (quote what looks like something else)", int: "a whole number"}
    return "null" if wanted is NoneType else names.get(wanted, wanted.__name__)
