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
    DIVISIONS_MINOR,
    KEY_BY_NAME,
    LIST_ZERO_MINOR,
    MIB,
    ROUNDUP_SLOTS,
    TOKENIZER_MINOR,
    UNLIMITED,
    Key,
    default_settings,
)
from torch_pool.conf_number import BadNumberError, stod, stoi, unsigned
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
_DISAGREE = "Allocator backend parsed at runtime != allocator backend parsed at load time"
_ASSERT_2_6 = (
    'config[i] == get()->name() INTERNAL ASSERT FAILED at "/pytorch/c10/cuda/CUDAAllocatorConfig.cpp":250, '
    "please report a bug to PyTorch. "
)


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


class TorchError(Exception):
    """torch refuses here; the message is torch's."""


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
        value, plain = self._value(key, self._take(_missing_value(key)))
        if key is not BACKEND:
            self.settings[key.setting] = value
        return Option(key, name, "".join(self.tokens[start : self.at]), value, plain)

    def _value(self, key: Key, text: str) -> "tuple[Value, bool]":
        if key.kind == "backend":
            return self._backend(text), True
        if key.kind == "switch":
            return self._switch(key, text), True
        if key.kind == "roundup":
            return self._roundup(text)
        if key.kind in {"ratio", "fraction"}:
            return self._ratio(key, text)
        return self._whole(key, text)

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

    def _backend(self, text: str) -> str:
        if text not in {"native", "cudaMallocAsync"}:
            raise TorchError("Unknown allocator backend, options are native and cudaMallocAsync")
        if text != self.backend:
            raise TorchError(
                f"{_DISAGREE}, {text} != {self.backend}"
                if self.lax
                else (_ASSERT_2_6 if self.minor == 6 else "") + _DISAGREE
            )
        return text

    def _switch(self, key: Key, text: str) -> bool:
        if text not in {"True", "False"}:
            raise TorchError(
                f"Expected 'True' or 'False' at index {self.at - 1} in ConfigTokenizer but got '{text}'"
                if self.lax
                else f"Expected a single True/False argument for {key.name}"
            )
        return text == "True"

    def _ratio(self, key: Key, text: str) -> tuple[float, bool]:
        value, plain = stod(text)
        if key.kind == "fraction" and not 0 <= value <= 1:
            raise TorchError(f"{key.name} is invalid, set it in [0.0, 1.0]")
        if key.kind == "ratio" and self.lax and not 0 < value < 1:
            raise TorchError("garbage_collect_threshold is invalid, set it in (0.0, 1.0)")
        if key.kind == "ratio" and not value > 0:
            raise TorchError("garbage_collect_threshold too small, set it 0.0~1.0")
        if key.kind == "ratio" and not value < 1:
            raise TorchError("garbage_collect_threshold too big, set it 0.0~1.0")
        return value, plain

    def _size_t(self, text: str) -> tuple[int, bool]:
        """A count: a minus sign wraps to a huge one. 2.0 to 2.9 read an int first, 2.10 reads 64 bits."""
        if self.lax:
            return unsigned(text, "stoull")
        value, plain = stoi(text)
        return value % (1 << 64), plain

    def _whole(self, key: Key, text: str) -> tuple[int, bool]:
        value, plain = self._size_t(text)
        if key.kind == "threads":
            self._check_threads(value)
        if key.kind == "positive" and value == 0:
            raise TorchError("Pinned reserve segment size has to be greater than 0")
        if key.kind == "segment" and value <= 10:
            raise TorchError("CachingAllocator option large_segment_size_mb must be > 10 MB")
        if key.kind == "split":
            self._check_split(key, value)
        if key.kind in {"split", "segment"}:
            return min(value, UNLIMITED // MIB) * MIB, plain
        return value, plain

    def _check_split(self, key: Key, mebibytes: int) -> None:
        segment = self.settings.get("large_segment_size", 20 * MIB)
        least = int(segment) // MIB if isinstance(segment, int) else 20
        if self.lax and mebibytes < least:
            raise TorchError(f"CachingAllocator option {key.name} too small, must be >= {least}")
        if not self.lax and mebibytes <= least:
            raise TorchError(f"CachingAllocator option {key.name} too small, must be > {least}")

    def _check_threads(self, value: int) -> None:
        got = f", got {value}" if self.lax else ""
        if not _is_power_of_2(value):
            raise TorchError(f"Number of register threads has to be power of 2{got}")
        if value > 128:
            raise TorchError(f"Number of register threads should be less than or equal to 128{got}")

    def _roundup(self, text: str) -> tuple[tuple[int, ...], bool]:
        if text == "[":
            return self._roundup_list()
        value, plain = self._size_t(text)
        if not _is_power_of_2(value):
            raise TorchError(self._bad_divisions())
        return (value,) * ROUNDUP_SLOTS, plain

    def _bad_divisions(self) -> str:
        word = "divisions" if self.minor >= DIVISIONS_MINOR else "divisons"
        return f"For roundups, the {word} has to be power of 2"

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
            value, value_plain = self._divisions()
            slot, size_plain = self._slot(size)
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

    def _divisions(self) -> tuple[int, bool]:
        value, plain = self._size_t(self._take("Error parsing roundup_power2_divisions value"))
        zero_allowed = self.minor >= LIST_ZERO_MINOR
        if not (_is_power_of_2(value) or (zero_allowed and value == 0)):
            raise TorchError(self._bad_divisions() + (" or 0 to disable roundup" if zero_allowed else ""))
        return value, plain

    def _slot(self, size: str) -> tuple[int, bool]:
        if size == ">":
            return 0, True
        value, plain = unsigned(size, "stoull" if self.lax else "stoul")
        if not _is_power_of_2(value):
            raise TorchError("For roundups, the intervals have to be power of 2")
        return min(value.bit_length() - 1, ROUNDUP_SLOTS - 1), plain

    def _between_sizes(self) -> None:
        if self.at >= len(self.tokens):
            if self.lax:
                raise TorchError(_OUT_OF_TOKENS)
            raise UndefinedError
        if self.tokens[self.at] != "]":
            self._mark(",")


def _missing_value(key: Key) -> str:
    """The words of torch 2.0 to 2.9 for a key whose value is missing."""
    if key.kind == "backend":
        return "Error parsing backend value"
    if key.kind == "switch" and key.scope == "native":
        return f"Expected a single True/False argument for {key.name}"
    return f"Error, expecting {key.name} value"


def _is_power_of_2(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0
