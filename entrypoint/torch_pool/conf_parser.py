"""What torch's own parsers make of a conf.

Two of them read it. At `import torch` one only picks the backend; the full parse comes later and must agree
with it. There are two generations:

* torch 2.0 to 2.9, c10/cuda/CUDAAllocatorConfig.cpp and BackendStaticInitializer in CUDACachingAllocator.cpp;
* torch 2.10 on, c10/core/AllocatorConfig.{h,cpp}: a bounds-checked tokenizer that ignores wrong separators,
  and one pass for each part of the parser, in which the keys of the others are skipped.

tests/data has what the real parsers did: alloc_conf_2.6.0.json, and alloc_conf_by_torch.json for the others.
"""

from torch_pool.conf_keys import (
    BACKEND,
    KEY_BY_NAME,
    ROUNDUP_SLOTS,
    SEGMENT_BYTES,
    TOKENIZER_MINOR,
    Key,
    default_settings,
)
from torch_pool.conf_number import BadNumberError
from torch_pool.conf_value import (
    TorchError,
    missing_value,
    read_backend,
    read_divisions,
    read_listed_divisions,
    read_number,
    read_slot,
    read_switch,
)
from torch_pool.record import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Literal

    from torch_pool.conf_keys import Part, Value

    Backend = Literal["native", "cudaMallocAsync"]

_MARKS = ",:[]"
_ALL_PARTS: "tuple[Part, ...]" = ("cuda", "segment", "general")
_SPACE = " \t\n\v\f\r"
_OUT_OF_TOKENS = "Index out of bounds in ConfigTokenizer"
_UNCLOSED = "Expected closing bracket ']' in ConfigTokenizer but reached end of config"


class Option(NamedTuple):
    """One `key:value`: `name` and `text` as torch sees them, `plain` if the value is no accident."""

    key: Key
    name: str
    text: str
    value: "Value"
    plain: bool


class Parse(NamedTuple):
    """What torch makes of a conf. `error` is in torch's words; `settings` is None with an error."""

    backend: "Backend"
    options: tuple[Option, ...]
    settings: "dict[str, Value] | None"
    error: str | None = None
    fails_at_import: bool = False
    undefined: bool = False
    unclosed: bool = False
    wrong_mark: bool = False


class UndefinedError(Exception):
    """torch reads past the end of its tokens here; anything may follow."""


def parse_conf(conf: str, minor: int) -> Parse:
    """Parse as torch 2.`minor` would. Raises nothing."""
    lax = minor >= TOKENIZER_MINOR
    tokens = lex(conf, _SPACE if lax else " ")
    try:
        backend = _load_backend_lax(tokens) if lax else _load_backend(conf)
    except TorchError as error:
        return Parse("native", (), None, str(error), fails_at_import=True)
    walk = _Walk(tokens, minor, backend)
    try:
        options = walk.options()
    except (TorchError, BadNumberError) as error:
        return Parse(backend, (), None, str(error))
    except UndefinedError:
        return Parse(backend, (), None, undefined=True)
    return Parse(
        backend,
        tuple(options),
        walk.settings,
        unclosed=walk.unclosed,
        wrong_mark=walk.wrong_mark,
    )


def lex(conf: str, dropped: str) -> list[str]:
    """Every mark is a token, and so is what stands between marks; `dropped` characters vanish anywhere."""
    for space in dropped:
        conf = conf.replace(space, "")
    for mark in _MARKS:
        conf = conf.replace(mark, f"\0{mark}\0")
    return [token for token in conf.split("\0") if token]


def _load_backend(conf: str) -> "Backend":
    r"""Load time, up to 2.9: items split on `[\s,]+`, each on `:+`; the first known `backend` item wins."""
    for space in _SPACE:
        conf = conf.replace(space, ",")
    for item in conf.split(","):
        name, _, rest = item.partition(":")
        value = rest.lstrip(":").partition(":")[0]
        if name == "backend" and value == "cudaMallocAsync":
            return "cudaMallocAsync"
        if name == "backend" and value == "native":
            return "native"
    return "native"


def _load_backend_lax(tokens: list[str]) -> "Backend":
    """Load time, from 2.10 on: the value of the first `backend` key, lists skipped. Raises TorchError."""
    at = 0
    while at < len(tokens):
        if at + 2 >= len(tokens):
            raise TorchError(_OUT_OF_TOKENS)
        value = tokens[at + 2]
        if tokens[at] == "backend":
            return "cudaMallocAsync" if value == "cudaMallocAsync" else "native"
        at = (_closing_bracket(tokens, at + 2) if value == "[" else at + 2) + 2
    return "native"


def _closing_bracket(tokens: list[str], start: int) -> int:
    try:
        return tokens.index("]", start)
    except ValueError:
        raise TorchError(_UNCLOSED) from None


class _Walk:
    """The full parse: one walk over the tokens, filling `settings` as torch fills its own fields."""

    def __init__(self, tokens: list[str], minor: int, backend: "Backend") -> None:
        self.tokens = tokens
        self.at = 0
        self.minor = minor
        self.lax = minor >= TOKENIZER_MINOR
        self.backend = backend
        self.settings = default_settings(minor)
        self.unclosed = False
        self.wrong_mark = False

    def options(self) -> list[Option]:
        """All options in their order. Raises TorchError, BadNumberError, UndefinedError."""
        if not self.lax:
            return list(self._pass(*_ALL_PARTS).values())
        found = self._pass("cuda") | self._pass("segment")
        if "large_segment_size" in self.settings:
            self.settings["max_non_split_rounding_size"] = self.settings["large_segment_size"]
        found |= self._pass("general")
        return [found[start] for start in sorted(found)]

    def _pass(self, *parts: "Part") -> dict[int, Option]:
        """Grammar: `key : value (, key : value)* [,]`. The options of `parts`, by place."""
        found = {}
        self.at = 0
        while self.at < len(self.tokens):
            start = self.at
            key = self._key(self._take(""))
            if key.part in parts:
                found[start] = self._option(key)
            else:
                self._skip_value()
            if self.at < len(self.tokens):
                self._mark(",")
        return found

    def _key(self, name: str) -> Key:
        key = KEY_BY_NAME.get(name)
        if key is None or key.since > self.minor:
            raise TorchError(
                f"Unrecognized key '{name}' in CUDA allocator config."
                if self.lax
                else f"Unrecognized CachingAllocator option: {name}"
            )
        return key

    def _skip_value(self) -> None:
        self._mark(":")
        if self._take("") == "[":
            self.at = _closing_bracket(self.tokens, self.at) + 1

    def _option(self, key: Key) -> Option:
        name = self.tokens[self.at - 1]
        self._mark(":")
        start = self.at
        value, plain = self._value(key, self._take(missing_value(key)))
        if key is not BACKEND:
            self.settings[key.setting] = value
        return Option(key, name, "".join(self.tokens[start : self.at]), value, plain)

    def _value(self, key: Key, text: str) -> "tuple[Value, bool]":
        if key.kind == "backend":
            return read_backend(text, self.backend, self.minor), True
        if key.kind == "switch":
            return read_switch(key, text, self.at - 1, self.minor), True
        if key.kind == "roundup" and text == "[":
            return self._roundup_list()
        if key.kind == "roundup":
            divisions, plain = read_divisions(text, self.minor)
            return (divisions,) * ROUNDUP_SLOTS, plain
        return read_number(key, text, self._segment_bytes(), self.minor)

    def _take(self, missing: str) -> str:
        if self.at >= len(self.tokens):
            raise TorchError(_OUT_OF_TOKENS if self.lax else missing)
        self.at += 1
        return self.tokens[self.at - 1]

    def _mark(self, mark: str) -> None:
        wrong = f"Error parsing CachingAllocator settings, expected {mark}"
        if self._take(wrong) != mark:
            if not self.lax:
                raise TorchError(wrong)
            self.wrong_mark = True

    def _segment_bytes(self) -> int:
        segment = self.settings.get("large_segment_size")
        return segment if isinstance(segment, int) else SEGMENT_BYTES

    def _roundup_list(self) -> tuple[tuple[int, ...], bool]:
        """`[ size:divisions (, size:divisions)* ]`: 16 slots; the first also fills the slots below it.

        Up to 2.9, `>` fills from the last named slot itself, whose value is lost; from 2.10 on from the next.
        """
        before = self.settings["roundup_power2_divisions"]
        slots = list(before) if isinstance(before, tuple) else []
        named: list[int] = []
        all_plain = True
        while (size := self._next_size()) is not None:
            self._mark(":")
            text = self._take("Error parsing roundup_power2_divisions value")
            value, value_plain = read_listed_divisions(text, self.minor)
            slot, size_plain = (0, True) if size == ">" else read_slot(size, self.minor)
            if size == ">":
                last = (named or [0])[-1] + (1 if self.lax else 0)
                slots[last:] = [value] * (ROUNDUP_SLOTS - last)
            else:
                slots[slot] = value
                if not named:
                    slots[:slot] = [value] * slot
                named.append(slot)
            all_plain = all_plain and value_plain and size_plain
            self._between_sizes()
        return tuple(slots), all_plain and not self.unclosed

    def _next_size(self) -> str | None:
        if self.at < len(self.tokens):
            size = self._take("")
            return None if size == "]" else size
        if self.lax:
            raise TorchError(_UNCLOSED)
        self.unclosed = True
        return None

    def _between_sizes(self) -> None:
        if self.at >= len(self.tokens):
            if self.lax:
                raise TorchError(_OUT_OF_TOKENS)
            raise UndefinedError
        if self.tokens[self.at] != "]":
            self._mark(",")
