"""The keys of a conf by torch version, as data.

Sources: c10/cuda/CUDAAllocatorConfig.cpp of torch 2.6.0, the allocator headers in the wheels of 2.2 to 2.14,
and runs of 2.6.0, 2.11.0 and 2.13.0. `release_lock_on_cudamalloc` came with 2.1 or 2.2; here it is 2.1.
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
    Value = bool | int | float | str | tuple[int, ...]

OLDEST_MINOR = 0
NEWEST_MINOR = 14
TOKENIZER_MINOR = 10
"""From torch 2.10 on, c10/core/AllocatorConfig reads the conf: other words, other limits, lax separators."""

MIB = 1 << 20
UNLIMITED = (1 << 64) - 1
"""What torch stores for "no limit": the largest size_t."""
ROUNDUP_SLOTS = 16


class Key(NamedTuple):
    """One key, known since torch 2.`since`. It sets torch's `setting`, which otherwise is `default`.

    `scope` says who heeds it: only the native allocator, or the host's (pinned memory) under any backend.
    """

    name: str
    kind: "Kind"
    since: int
    scope: "Scope"
    default: "Value"
    setting: str
    alias: str | None = None


BACKEND = Key("backend", "backend", 0, "backend", "native", "backend")

KEYS = (
    BACKEND,
    Key("max_split_size_mb", "split", 0, "native", UNLIMITED, "max_split_size"),
    Key("max_non_split_rounding_mb", "split", 6, "native", 20 * MIB, "max_non_split_rounding_size"),
    Key("garbage_collection_threshold", "ratio", 0, "native", 0.0, "garbage_collection_threshold"),
    Key(
        "roundup_power2_divisions",
        "roundup",
        0,
        "native",
        (0,) * ROUNDUP_SLOTS,
        "roundup_power2_divisions",
    ),
    Key("expandable_segments", "switch", 1, "native", False, "expandable_segments"),
    Key(
        "release_lock_on_cudamalloc",
        "switch",
        1,
        "native",
        False,
        "release_lock_on_cudamalloc",
        "release_lock_on_hipmalloc",
    ),
    Key(
        "pinned_use_cuda_host_register",
        "switch",
        2,
        "host",
        False,
        "pinned_use_cuda_host_register",
        "pinned_use_hip_host_register",
    ),
    Key("pinned_num_register_threads", "threads", 2, "host", 1, "pinned_num_register_threads"),
    Key("pinned_use_background_threads", "switch", 6, "host", False, "pinned_use_background_threads"),
    Key(
        "graph_capture_record_stream_reuse", "switch", 9, "native", False, "graph_capture_record_stream_reuse"
    ),
    Key("per_process_memory_fraction", "fraction", 10, "native", 1.0, "per_process_memory_fraction"),
    Key("pinned_reserve_segment_size_mb", "positive", 10, "host", 0, "pinned_reserve_segment_size_mb"),
    Key("large_segment_size_mb", "segment", 11, "native", 20 * MIB, "large_segment_size"),
    Key("pinned_free_catch_all", "switch", 12, "host", False, "pinned_free_catch_all"),
    Key("throw_on_cudamalloc_oom", "switch", 12, "native", False, "throw_on_cudamalloc_oom"),
    Key("pinned_max_round_threshold_mb", "count", 13, "host", UNLIMITED, "pinned_max_round_threshold_mb"),
    Key("pinned_max_cached_size_mb", "count", 13, "host", UNLIMITED, "pinned_max_cached_size_mb"),
)

KEY_BY_NAME = {name: key for key in KEYS for name in (key.name, key.alias) if name}


def default_settings(minor: int) -> dict[str, "Value"]:
    """The settings of torch 2.`minor` without a conf; settings that this torch lacks are absent."""
    return {key.setting: key.default for key in KEYS if key.since <= minor and key is not BACKEND}
