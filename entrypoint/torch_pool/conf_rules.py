"""What to tell the user about a conf: refused, ignored, without effect, harmful, accepted by accident.

Sources: the allocators of torch 2.6.0 (c10/cuda/CUDACachingAllocator.cpp, CUDAMallocAsyncAllocator.cpp), and
what was seen on an H200 with 2.6.0 and 2.11.0. Each rule is one function; `RULES` lists them.
"""

from torch_pool.conf_keys import MIB, ROUNDUP_SLOTS, TOKENIZER_MINOR, UNLIMITED
from torch_pool.conf_remedy import remedy_for
from torch_pool.finding import Finding
from torch_pool.record import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch_pool.conf_keys import Value
    from torch_pool.conf_parser import Option, Parse

_MOMENTS = {
    "import": "at import torch",
    "init": "at the first CUDA call",
    "late": "late, at the first .item() or pinned allocation",
}
_NO_ROUNDUP = ((0,) * ROUNDUP_SLOTS, (1,) * ROUNDUP_SLOTS)
_LOW_SPLIT_MIB = 64


class Case(NamedTuple):
    """All that a rule may look at."""

    conf: str
    minor: int
    parse: "Parse"
    when: str

    def setting(self, name: str) -> "Value | None":
        """What torch would set, None where it refuses the conf or has no such setting."""
        return (self.parse.settings or {}).get(name)

    def names(self, key: str) -> bool:
        """Does the conf name this key?"""
        return any(option.key.name == key for option in self.parse.options)

    def is_async(self) -> bool:
        return self.parse.backend == "cudaMallocAsync"

    def split_limit_mib(self) -> int | None:
        """The limit that max_split_size_mb sets; None where there is none."""
        limit = self.setting("max_split_size")
        return limit // MIB if isinstance(limit, int) and limit // MIB < UNLIMITED // MIB else None


def find(case: Case) -> list[Finding]:
    """Every finding, the gravest first."""
    found = [finding for rule in RULES for finding in rule(case)]
    return sorted(found, key=lambda finding: ("refuse", "warn", "note").index(finding.severity))


def show(text: str) -> str:
    """A text as it can stand in a message: quoted, printable, not endless."""
    return ascii(text if len(text) <= 200 else text[:197] + "...")


def _show_option(option: "Option") -> str:
    return f"{option.name}:{show(option.text)[1:-1]}"


def _nul(case: Case) -> "Iterator[Finding]":
    if "\0" in case.conf:
        message = f"{show(case.conf)} has a NUL character, which no environment can hold: remove it"
        yield Finding("refuse", "nul-character", None, message)


def _quotes(case: Case) -> "Iterator[Finding]":
    quote = next((character for character in case.conf if character in "\"'"), None)
    if quote:
        message = (
            f"{show(case.conf)} contains the quote character {quote}, which torch takes for a part of a "
            "name or value: remove the quotes (docker run --env-file keeps them, unlike a shell or Compose)"
        )
        yield Finding("refuse", "literal-quotes", None, message)


def _refused_by_torch(case: Case) -> "Iterator[Finding]":
    error = case.parse.error
    if error is not None:
        message = (
            f"torch 2.{case.minor} refuses {show(case.conf)} {_MOMENTS[case.when]} with {show(error)}: "
            f"{remedy_for(error, case.minor)}"
        )
        yield Finding("refuse", "torch-refuses", None, message)
    if case.parse.undefined:
        message = (
            f"torch 2.{case.minor} reads past the end of {show(case.conf)}, which is undefined behaviour: "
            "close the list with ]"
        )
        yield Finding("refuse", "undefined-behaviour", "roundup_power2_divisions", message)


def _expandable_with_max_split(case: Case) -> "Iterator[Finding]":
    if not case.is_async() and case.setting("expandable_segments") and case.split_limit_mib() is not None:
        message = (
            "expandable_segments:True with max_split_size_mb lets reserved memory grow without bound, as "
            "free regions above the limit are never reused for smaller requests: remove max_split_size_mb"
        )
        yield Finding("refuse", "expandable-with-max-split", "max_split_size_mb", message)


def _ignored_under_async(case: Case) -> "Iterator[Finding]":
    native = {option.key.name: option for option in case.parse.options if option.key.scope == "native"}
    for name, option in native.items() if case.is_async() else ():
        message = (
            f"{_show_option(option)} is ignored with backend:cudaMallocAsync: remove it, or choose the "
            "native allocator if it is needed (TORCH_POOL_ALLOCATOR=native or expandable)"
        )
        yield Finding("warn", "ignored-under-async", name, message)


def _max_split(case: Case) -> "Iterator[Finding]":
    limit = case.split_limit_mib()
    if limit is not None and not case.is_async() and not case.setting("expandable_segments"):
        low = ", all the more with a limit this low" if limit <= _LOW_SPLIT_MIB else ""
        message = (
            f"max_split_size_mb:{limit} keeps free blocks of {limit} MiB and more from smaller requests, "
            f"which has multiplied reserved memory in measurements{low}: leave it out, or try "
            "expandable_segments:True instead"
        )
        yield Finding("warn", "max-split", "max_split_size_mb", message)


def _threshold_without_effect(case: Case) -> "Iterator[Finding]":
    key = "garbage_collection_threshold"
    if case.is_async() or not case.names(key):
        return
    if case.setting("expandable_segments"):
        yield _no_effect(key, "with expandable_segments:True, whose blocks it skips: remove one of the two")
    elif case.setting("per_process_memory_fraction") in {None, 1.0}:
        reason = "unless the program's memory is capped: set TORCH_POOL_MEMORY, call "
        remedy = "torch.cuda.set_per_process_memory_fraction, or remove the key"
        yield _no_effect(key, reason + remedy)


def _rounding_without_effect(case: Case) -> "Iterator[Finding]":
    if case.is_async():
        return
    if case.names("max_non_split_rounding_mb") and case.split_limit_mib() is None:
        yield _no_effect("max_non_split_rounding_mb", "without max_split_size_mb: remove it")
    key = "roundup_power2_divisions"
    if case.names(key) and case.setting(key) in _NO_ROUNDUP:
        yield _no_effect(key, "with 0 or 1 divisions: remove it, or give 2 or more")


def _threads_without_effect(case: Case) -> "Iterator[Finding]":
    key = "pinned_num_register_threads"
    if case.names(key) and not case.setting("pinned_use_cuda_host_register"):
        yield _no_effect(key, "without pinned_use_cuda_host_register:True: add that, or remove it")


def _no_effect(key: str, reason_and_remedy: str) -> Finding:
    return Finding("warn", "no-effect", key, f"{key} has no effect {reason_and_remedy}")


def _background_threads(case: Case) -> "Iterator[Finding]":
    """Seen with 2.6.0 (3 of 4 runs that used pinned memory), not with 2.11."""
    key = "pinned_use_background_threads"
    if case.minor == 6 and case.setting(key):
        message = (
            f"{key}:True makes most programs that use pinned memory crash at exit with torch 2.6: remove it"
        )
        yield Finding("warn", "crash-at-exit", key, message)


def _lost_interval(case: Case) -> "Iterator[Finding]":
    """Up to 2.9 `>` overwrites the entry before it (corrected in pytorch PR 165304)."""
    for option in case.parse.options:
        before, has_rest, rest = option.text.rpartition(",>:")
        lost = before.rpartition(",")[2].lstrip("[")
        if has_rest and case.minor < TOKENIZER_MINOR and lost.partition(":")[2] != rest.rstrip("]"):
            message = (
                f"torch 2.{case.minor} overwrites {show(lost)[1:-1]} in {_show_option(option)} with what "
                "follows >: name the next interval before >"
            )
            yield Finding("warn", "lost-interval", option.key.name, message)


def _accidental_value(case: Case) -> "Iterator[Finding]":
    for option in case.parse.options:
        if not option.plain:
            message = (
                f"torch 2.{case.minor} accepts {_show_option(option)} by accident and reads it as "
                f"{_spoken(option)}: write a plain value"
            )
            yield Finding("warn", "accidental-value", option.key.name, message)


def _spoken(option: "Option") -> str:
    value = option.value
    if isinstance(value, tuple):
        return "the divisions " + " ".join(map(str, value))
    if isinstance(value, int) and value // MIB >= UNLIMITED // MIB:
        return "unlimited"
    if isinstance(value, int) and option.key.kind in {"split", "segment"}:
        return f"{value // MIB} MiB"
    return str(value)


def _duplicates(case: Case) -> "Iterator[Finding]":
    names = [option.key.name for option in case.parse.options]
    for name in dict.fromkeys(names):
        if names.count(name) > 1:
            message = (
                f"{name} stands {names.count(name)} times in {show(case.conf)}: give it once, the last counts"
            )
            yield Finding("warn", "duplicate-key", name, message)


def _overlooked(case: Case) -> "Iterator[Finding]":
    """What torch overlooks between options."""
    if case.parse.unclosed:
        yield _accident(case, "unclosed-list", "the list is not closed: close it with ]")
    if case.parse.wrong_mark:
        yield _accident(case, "wrong-separator", "a separator is wrong: write key:value,key:value")
    if case.parse.settings is not None and _has_blank_inside_word(case.conf):
        yield _accident(case, "blank-inside", "a name or value has a blank in it: remove the blank")


def _accident(case: Case, code: str, reason_and_remedy: str) -> Finding:
    return Finding("warn", code, None, f"torch accepts {show(case.conf)} by accident, {reason_and_remedy}")


def _has_blank_inside_word(conf: str) -> bool:
    for mark in ":[]":
        conf = conf.replace(mark, ",")
    return any(len(word.split()) > 1 for word in conf.split(","))


def _untidy(case: Case) -> "Iterator[Finding]":
    """Harmless with this torch."""
    if case.parse.settings is None:
        return
    if any(character.isspace() for character in case.conf) and not _has_blank_inside_word(case.conf):
        message = f"{show(case.conf)} has white space, which torch refuses in other places: remove it"
        yield Finding("note", "white-space", None, message)
    if case.conf.rstrip().endswith(","):
        yield Finding("note", "trailing-comma", None, f"{show(case.conf)} ends with a comma: remove it")


RULES: "tuple[Callable[[Case], Iterator[Finding]], ...]" = (
    _nul,
    _quotes,
    _refused_by_torch,
    _expandable_with_max_split,
    _ignored_under_async,
    _max_split,
    _threshold_without_effect,
    _rounding_without_effect,
    _threads_without_effect,
    _background_threads,
    _lost_interval,
    _accidental_value,
    _duplicates,
    _overlooked,
    _untidy,
)
