"""Tables in YAML that become frozen records."""

from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, TypeVar

import yaml
from torch_pool.refusal import Refusal

T = TypeVar("T")


def read_table(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file.

    Raises:
        Refusal: the file is missing, is not YAML, or holds no mapping.
    """
    try:
        values = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise Refusal(f"{path} cannot be read: {' '.join(str(error).split())}") from error
    if not isinstance(values, dict):
        raise Refusal(f"{path} holds no mapping of keys to values")
    return values


def to_record(record: type[T], values: dict[str, Any], place: str) -> T:
    """A frozen dataclass from a mapping; lists become tuples.

    Raises:
        Refusal: a key is missing or unknown; `place` says where.
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
    return record(
        **{key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
    )
