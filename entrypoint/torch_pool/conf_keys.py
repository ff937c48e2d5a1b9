"""The keys of a conf by torch version, as data.

Sources: the allocator headers in the wheels of 2.2 to 2.14, and runs of the real parsers of 2.0 to 2.14 (but
2.13), recorded in tests/data/alloc_conf_by_torch.json.
"""

from torch_pool.record import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Literal

    Kind = Literal[
        "backend",
        "split",
        "segment",
        "ratio",
        "fraction",
        "switch",
        "roundup",
        "threads",
        "positive",
        "count",
    ]
    Scope = Literal["backend", "native", "host"]
    Part = Literal["cuda", "segment", "general"]
    Value = bool | int | float | str | tuple[int, ...]

OLDEST_MINOR = 0
NEWEST_MINOR = 14
LIST_ZERO_MINOR = 4
"""From torch 2.4 on, a roundup list may say 0 divisions."""
DIVISIONS_MINOR = 8
"""From torch 2.8 on, torch's messages spell "divisions" rightly."""
TOKENIZER_MINOR = 10
"""From torch 2.10 on, c10/core/AllocatorConfig reads the conf: other words, other limits, lax separators."""

MIB = 1 << 20
UNLIMITED = (1 << 64) - 1
"""What torch stores for "no limit": the largest size_t."""
ROUNDUP_SLOTS = 16
SEGMENT_BYTES = 20 * MIB
"""The size of the segments that torch asks of CUDA for large blocks, and the default of two settings."""


class Key(NamedTuple):
    """One key, known since torch 2.`since`, and the value without it.

    `scope` says who heeds it: only the native allocator, or the host's (pinned memory) under any backend.
    `part` says which part of the parser reads it from torch 2.10 on. `renamed` is torch's name of the setting
    where it is not the key's.
    """

    name: str
    kind: "Kind"
    since: int
    scope: "Scope"
    default: "Value"
    part: "Part" = "cuda"
    alias: str | None = None
    renamed: str | None = None

    @property
    def setting(self) -> str:
        """Torch's name of the setting."""
        return self.renamed or self.name


BACKEND = Key("backend", "backend", 0, "backend", "native")

_NO_ROUNDUP = (0,) * ROUNDUP_SLOTS
_SPLIT = "max_split_size"
_ROUNDING = "max_non_split_rounding_size"
_SEGMENT = "large_segment_size"

# One line a key, so that it reads as a table.
# fmt: off
KEYS = (
    BACKEND,
    Key("max_split_size_mb", "split", 0, "native", UNLIMITED, "general", renamed=_SPLIT),
    Key("max_non_split_rounding_mb", "split", 6, "native", SEGMENT_BYTES, "general", renamed=_ROUNDING),
    Key("garbage_collection_threshold", "ratio", 0, "native", 0.0, "general"),
    Key("roundup_power2_divisions", "roundup", 0, "native", _NO_ROUNDUP, "general"),
    Key("expandable_segments", "switch", 1, "native", False, "general"),
    Key("release_lock_on_cudamalloc", "switch", 2, "native", False, alias="release_lock_on_hipmalloc"),
    Key("pinned_use_cuda_host_register", "switch", 2, "host", False, alias="pinned_use_hip_host_register"),
    Key("pinned_num_register_threads", "threads", 2, "host", 1),
    Key("pinned_use_background_threads", "switch", 6, "host", False, "general"),
    Key("graph_capture_record_stream_reuse", "switch", 9, "native", False),
    Key("per_process_memory_fraction", "fraction", 10, "native", 1.0),
    Key("pinned_reserve_segment_size_mb", "positive", 10, "host", 0),
    Key("large_segment_size_mb", "segment", 11, "native", SEGMENT_BYTES, "segment", renamed=_SEGMENT),
    Key("pinned_free_catch_all", "switch", 12, "host", False),
    Key("throw_on_cudamalloc_oom", "switch", 12, "native", False),
    Key("pinned_max_round_threshold_mb", "count", 13, "host", UNLIMITED, "general"),
    Key("pinned_max_cached_size_mb", "count", 13, "host", UNLIMITED, "general"),
)
# fmt: on

KEY_BY_NAME = {name: key for key in KEYS for name in (key.name, key.alias) if name}


def default_settings(minor: int) -> dict[str, "Value"]:
    """The settings of torch 2.`minor` without a conf; settings that this torch lacks are absent."""
    return {key.setting: key.default for key in KEYS if key.since <= minor and key is not BACKEND}
