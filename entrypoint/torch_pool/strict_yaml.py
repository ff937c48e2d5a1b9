"""YAML without its surprises: a document is read as it looks, or refused with file, line and what was meant.

PyYAML reads YAML 1.1, where `no` is false, `0512` is 330 and `1:30` is 90. No value passes here that YAML 1.1
and a human read differently. PyYAML is imported when a document is parsed: a baked profile starts without it.
"""

import os
import re
import stat
from typing import Any, NoReturn

from torch_pool.record import NamedTuple
from torch_pool.refusal import Refusal

MAX_BYTES = 64 * 1024
"""A profile is a page of text; a larger file is a wrong path."""

_BOOLS = {"true": True, "True": True, "false": False, "False": False}
_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)")
_DECIMAL = re.compile(r"-?(0|[1-9][0-9]*)\.([0-9]*[1-9]|0)")
_NUMBER_LIKE = re.compile(r"[-+.]?[0-9][0-9a-fA-FxobB_.:,+-]*")
_NO_SPACE = re.compile(r"[\s{,]*([A-Za-z_]\w*):([^\s,}]+)")


class Entry(NamedTuple):
    """A value and where it stands: a str, int, float, bool, None, or a dict or list of entries."""

    value: Any
    text: str
    place: str


def parse_file(path: str) -> dict[str, Entry]:
    """The mapping in the file; raises Refusal with path and line for anything else."""
    return parse_text(_read_text(path), path)


def parse_text(text: str, path: str) -> dict[str, Entry]:
    """The mapping in `text`; `path` is only named in messages."""
    entry = _read(_compose(text, path), path)
    if isinstance(entry.value, dict):
        return entry.value
    raise Refusal(
        f"{entry.place}: a profile is lines of 'key: value', not {entry.text!r}{_missing_space(entry.text)}"
    )


def _compose(text: str, path: str) -> Any:
    import yaml  # noqa: PLC0415 - only who reads YAML pays for the import

    try:
        _refuse_indirection(yaml.parse(text, yaml.SafeLoader), path)
        root = yaml.compose(text, yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        _refuse_syntax(error, text, path)
    except yaml.YAMLError as error:
        raise Refusal(f"{path}: is not YAML: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise Refusal(f"{path}: is nested too deeply; a profile is a flat mapping") from error
    if root is None:
        raise Refusal(f"{path}: is empty; a profile needs at least a 'summary' and an 'allocator'")
    return root


def _refuse_indirection(events: Any, path: str) -> None:
    """Anchors can loop and tags can build objects; a profile needs neither."""
    for event in events:
        place = f"{path}:{event.start_mark.line + 1}"
        if getattr(event, "anchor", None):
            raise Refusal(
                f"{place}: anchors and aliases ({event.anchor!r}) are not allowed; repeat the value"
            )
        if getattr(event, "tag", None):
            raise Refusal(f"{place}: tags ({event.tag!r}) are not allowed; write the plain value")


def _refuse_syntax(error: Any, text: str, path: str) -> NoReturn:
    line = error.problem_mark.line if error.problem_mark else 0
    lines = text.splitlines() or [""]
    source = lines[min(line, len(lines) - 1)][:80]
    hint = "; indent with spaces, not tabs" if "\t" in source else _missing_space(source)
    raise Refusal(f"{path}:{line + 1}: cannot read {source.strip()!r}: {error.problem}{hint}") from error


def _missing_space(source: str) -> str:
    found = _NO_SPACE.match(source)
    return f"; a space is missing after the colon, write '{found[1]}: {found[2]}'" if found else ""


def _read(node: Any, path: str) -> Entry:
    place = f"{path}:{node.start_mark.line + 1}"
    if node.id == "mapping":
        return Entry(_read_mapping(node, path), "a mapping", place)
    if node.id == "sequence":
        return Entry([_read(item, path) for item in node.value], "a list", place)
    if node.style is not None:
        return Entry(node.value, node.value, place)
    return Entry(_read_plain(node.value, node.tag.rpartition(":")[2], place), node.value, place)


def _read_mapping(node: Any, path: str) -> dict[str, Entry]:
    entries: dict[str, Entry] = {}
    for key_node, value_node in node.value:
        key = _read(key_node, path)
        if not isinstance(key.value, str):
            raise Refusal(f"{key.place}: {key.text!r} is not a key; keys are words such as 'allocator'")
        if key.value in entries:
            earlier = entries[key.value].place
            raise Refusal(f"{key.place}: {key.value!r} is given twice (first at {earlier}); keep one of them")
        hint = _missing_space(key.value)
        if hint:
            raise Refusal(f"{key.place}: {key.value!r} is not a key{hint}")
        entries[key.value] = _read(value_node, path)._replace(place=key.place)
    return entries


def _read_plain(text: str, tag: str, place: str) -> Any:
    """The value of an unquoted scalar, if YAML 1.1 and a human agree on it."""
    if text in _BOOLS:
        return _BOOLS[text]
    if text == "null":
        return None
    if tag == "int" and _INTEGER.fullmatch(text):
        return int(text)
    if tag == "float" and _DECIMAL.fullmatch(text):
        return float(text)
    if tag == "str" and not _NUMBER_LIKE.fullmatch(text):
        return text
    raise Refusal(f"{place}: {_explain_trap(text, tag)}")


def _explain_trap(text: str, tag: str) -> str:
    if tag == "null":
        return (
            f"{text} is null in YAML 1.1; write null"
            if text
            else "the value is empty; write null, or remove the line"
        )
    if tag == "bool":
        meant = "true" if _yaml_1_1(text) else "false"
        return f'{text} is {meant} in YAML 1.1; write {meant}, or "{text}" in quotes for the word'
    if tag in ("int", "float"):
        reading = _yaml_1_1(text)
        return f'{text} is {reading} in YAML 1.1; write {_meant(text)}, or "{text}" in quotes for the text'
    if tag == "str":
        return (
            f"{text} is the text '{text}' in YAML 1.1, not a number; write {_meant(text)}, "
            f'or "{text}" in quotes for the text'
        )
    return f'{text} is a {tag} in YAML 1.1; write "{text}" in quotes for the text'


def _yaml_1_1(text: str) -> Any:
    import yaml  # noqa: PLC0415 - only who reads YAML pays for the import

    return yaml.safe_load(text)


def _meant(text: str) -> str:
    """What the author of a trapped number most likely meant: 512 for 0512, 1000 for 1_000, 90 for 1:30."""
    digits = text.replace("_", "").lstrip("+")
    if digits.isdigit():
        return digits.lstrip("0") or "0"
    try:
        return f"{float(digits):.12f}".rstrip("0").rstrip(".")
    except ValueError:
        reading = _yaml_1_1(text)
        return "a plain decimal number" if isinstance(reading, str) else str(reading)


def _read_text(path: str) -> str:
    try:
        # A path from the user may name a FIFO or a device: opening or reading those could wait for ever.
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise Refusal(f"{path}: is not a file; name a YAML profile")
        with open(path, encoding="utf-8-sig") as file:
            text = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise Refusal(f"{path}: cannot be read ({error.strerror}); check the path and the mount") from error
    except UnicodeDecodeError as error:
        raise Refusal(f"{path}: is not UTF-8 text (byte {error.start}); name a YAML profile") from error
    if len(text) > MAX_BYTES:
        raise Refusal(f"{path}: is larger than {MAX_BYTES // 1024} KiB; name a YAML profile")
    return text
