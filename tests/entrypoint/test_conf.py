import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_pool.conf import CONF_BY_ALLOCATOR, judge, judge_environment
from torch_pool.conf_keys import KEYS, NEWEST_MINOR, default_settings

from tests.entrypoint.conf_outcome import expected_outcome, recorded_outcome

ROOT = Path(__file__).parents[2]
CASES = json.loads((ROOT / "tests/data/alloc_conf_2.6.0.json").read_text())["cases"]
MINORS = range(NEWEST_MINOR + 1)
DISAGREE = "Allocator backend parsed at runtime != allocator backend parsed at load time"
NATIVE_SETTINGS = {key.setting for key in KEYS if key.scope == "native"}


def codes(verdict, severity=None):
    return [f.code for f in verdict.findings if severity in {None, f.severity}]


# The real parser of 2.6.0


@pytest.mark.parametrize("case", CASES, ids=[ascii(case["conf"])[:60] for case in CASES])
def test_torch_2_6_0_does_what_we_say(case):
    assert expected_outcome(case["conf"]) == recorded_outcome(case)


@pytest.mark.parametrize("case", CASES, ids=[ascii(case["conf"])[:60] for case in CASES])
def test_what_torch_refuses_is_refused(case):
    verdict = judge(case["conf"], "2.6.0+cu124")
    torch_takes_it = case["outcome"] == "ok"
    assert verdict.accepted == torch_takes_it
    assert bool({"torch-refuses", "undefined-behaviour"} & set(codes(verdict, "refuse"))) != torch_takes_it
    assert verdict.backend == case["load_backend"]


# The real parsers of the other versions

OUTCOMES = json.loads((ROOT / "tests/data/alloc_conf_by_torch.json").read_text())["by_torch"]
RECORDS = [(torch, record) for torch, records in OUTCOMES.items() for record in records]


def foretold(conf, torch, names):
    verdict = judge(conf, torch)
    if verdict.when == "import":
        return {"conf": conf, "outcome": "import"}
    told = {"conf": conf, "outcome": "ok", "load_backend": verdict.backend, **(verdict.settings or {})}
    if verdict.error is not None:
        told |= {"outcome": "error", "message": verdict.error}
    return {name: list(v) if isinstance(v, tuple) else v for name, v in told.items() if name in names}


@pytest.mark.parametrize(
    ("torch", "record"), RECORDS, ids=[f"{t}-{ascii(r['conf'])[:50]}" for t, r in RECORDS]
)
def test_every_torch_does_what_we_say(torch, record):
    assert foretold(record["conf"], torch, record) == record


# When and with what words


@pytest.mark.parametrize(
    ("conf", "torch", "when", "error"),
    [
        ("max_split_size_mb:abc", "2.6", "init", "stoi"),
        ("backend:cudaMallocAsync,bogus:1", "2.6", "late", "Unrecognized CachingAllocator option: bogus"),
        ("bogus:1", "2.11", "init", "Unrecognized key 'bogus' in CUDA allocator config."),
        ("max_split_size_mb:abc", "2.11", "init", "stoull"),
        ("max_split_size_mb", "2.11", "import", "Index out of bounds in ConfigTokenizer"),
        ("max_split_size_mb:", "2.11", "import", "Index out of bounds in ConfigTokenizer"),
        (
            "roundup_power2_divisions:[256:1",
            "2.13",
            "import",
            "Expected closing bracket ']' in ConfigTokenizer but reached end of config",
        ),
        (
            "expandable_segments:true",
            "2.13",
            "init",
            "Expected 'True' or 'False' at index 2 in ConfigTokenizer but got 'true'",
        ),
        (
            "garbage_collection_threshold:1",
            "2.10",
            "init",
            "garbage_collect_threshold is invalid, set it in (0.0, 1.0)",
        ),
        (
            "large_segment_size_mb:10",
            "2.11",
            "init",
            "CachingAllocator option large_segment_size_mb must be > 10 MB",
        ),
        (
            "backend:native,backend:cudaMallocAsync",
            "2.11",
            "init",
            f"{DISAGREE}, cudaMallocAsync != native",
        ),
        (
            "expandable_segments:True",
            "2.0",
            "init",
            "Unrecognized CachingAllocator option: expandable_segments",
        ),
    ],
)
def test_a_failure_is_foretold_with_its_moment_and_torchs_words(conf, torch, when, error):
    verdict = judge(conf, torch)
    assert (verdict.accepted, verdict.when, verdict.error) == (False, when, error)


@pytest.mark.parametrize(
    ("conf", "accepted_by"),
    [
        ("max_split_size_mb:20", range(10, 15)),
        ("max_split_size_mb,512", range(10, 15)),
        ("backend: cudaMallocAsync", range(10, 15)),
        ("max_split_size_mb:2147483648", range(10, 15)),
        ("expandable_segments:True", range(1, 15)),
        ("pinned_num_register_threads:8", range(2, 15)),
        ("max_non_split_rounding_mb:64", range(6, 15)),
        ("graph_capture_record_stream_reuse:True", range(9, 15)),
        ("per_process_memory_fraction:0.5", range(10, 15)),
        ("large_segment_size_mb:12,max_split_size_mb:12", range(11, 15)),
        ("throw_on_cudamalloc_oom:True", range(12, 15)),
        ("pinned_max_cached_size_mb:1", range(13, 15)),
        ("roundup_power2_divisions:[", range(10)),
        ("max_split_size_mb", ()),
    ],
)
def test_each_torch_is_judged_by_its_own_rules(conf, accepted_by):
    assert [minor for minor in MINORS if judge(conf, f"2.{minor}.0").accepted] == list(accepted_by)


def test_the_entry_before_the_rest_is_lost_up_to_2_9_only():
    conf = "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]"
    old, new = judge(conf, "2.9"), judge(conf, "2.10")
    assert old.settings["roundup_power2_divisions"] == (1,) * 9 + (2,) + (8,) * 6
    assert new.settings["roundup_power2_divisions"] == (1,) * 9 + (2, 4) + (8,) * 5
    assert (codes(old), codes(new)) == (["lost-interval"], [])


@pytest.mark.parametrize("version", ["2.15.0", "2.99", "3.0.1", "", "nightly", "2", "2.x", "2." + "9" * 5000])
@pytest.mark.parametrize(
    "conf", ["bogus:1", "max_split_size_mb", '"backend:native"', "expandable_segments:True"]
)
def test_an_unknown_newer_torch_warns_and_never_refuses(version, conf):
    verdict = judge(conf, version)
    assert verdict.accepted
    assert codes(verdict, "refuse") == []
    assert codes(verdict, "warn")[0] == "unknown-torch"
    assert verdict.torch == f"2.{NEWEST_MINOR}"


# Findings

GOOD = [
    "",
    *CONF_BY_ALLOCATOR.values(),
    "roundup_power2_divisions:16,expandable_segments:True",
    "backend:cudaMallocAsync,pinned_use_cuda_host_register:True,pinned_num_register_threads:8",
    "roundup_power2_divisions:[256:1,512:2,1024:8,>:8]",
]


@pytest.mark.parametrize("conf", GOOD)
def test_a_good_conf_gives_no_finding(conf):
    assert judge(conf, "2.6.0").findings == ()


@pytest.mark.parametrize(
    ("conf", "finding"),
    [
        ("bogus:1", ("refuse", "torch-refuses", None)),
        ("'backend:native'", ("refuse", "literal-quotes", None)),
        ('max_split_size_mb:512"', ("refuse", "literal-quotes", None)),
        ("roundup_power2_divisions:[256:1", ("refuse", "undefined-behaviour", "roundup_power2_divisions")),
        ("a\0b", ("refuse", "nul-character", None)),
        (
            "expandable_segments:True,max_split_size_mb:512",
            ("refuse", "expandable-with-max-split", "max_split_size_mb"),
        ),
        (
            "backend:cudaMallocAsync,max_split_size_mb:512",
            ("warn", "ignored-under-async", "max_split_size_mb"),
        ),
        (
            "backend:cudaMallocAsync,expandable_segments:True",
            ("warn", "ignored-under-async", "expandable_segments"),
        ),
        ("max_split_size_mb:512", ("warn", "max-split", "max_split_size_mb")),
        ("max_split_size_mb:512MB", ("warn", "accidental-value", "max_split_size_mb")),
        ("max_split_size_mb:-1", ("warn", "accidental-value", "max_split_size_mb")),
        ("garbage_collection_threshold:0.8x", ("warn", "accidental-value", "garbage_collection_threshold")),
        ("roundup_power2_divisions:[256MB:4]", ("warn", "accidental-value", "roundup_power2_divisions")),
        ("max_split_size_mb:5 1 2", ("warn", "blank-inside", None)),
        ("roundup_power2_divisions:[256:2,", ("warn", "unclosed-list", None)),
        ("max_split_size_mb:64,max_split_size_mb:128", ("warn", "duplicate-key", "max_split_size_mb")),
        ("garbage_collection_threshold:0.8", ("warn", "no-effect", "garbage_collection_threshold")),
        (
            "garbage_collection_threshold:0.8,expandable_segments:True",
            ("warn", "no-effect", "garbage_collection_threshold"),
        ),
        ("max_non_split_rounding_mb:64", ("warn", "no-effect", "max_non_split_rounding_mb")),
        ("roundup_power2_divisions:1", ("warn", "no-effect", "roundup_power2_divisions")),
        ("pinned_num_register_threads:8", ("warn", "no-effect", "pinned_num_register_threads")),
        ("pinned_use_background_threads:True", ("warn", "crash-at-exit", "pinned_use_background_threads")),
        ("expandable_segments:True,", ("note", "trailing-comma", None)),
        (" expandable_segments:True", ("note", "white-space", None)),
    ],
)
def test_a_fault_is_named(conf, finding):
    assert finding in [tuple(f[:3]) for f in judge(conf, "2.6.0").findings]


def test_a_wrong_separator_that_newer_torch_overlooks_is_named():
    assert "wrong-separator" in codes(judge("max_split_size_mb,512", "2.11"), "warn")


def test_literal_quotes_are_traced_to_the_env_file():
    first = judge('"expandable_segments:True"', "2.6.0").findings[0]
    assert first.severity == "refuse"
    assert "--env-file" in first.message


def test_a_memory_cap_gives_the_threshold_its_effect():
    verdict = judge("garbage_collection_threshold:0.8,per_process_memory_fraction:0.5", "2.10")
    assert verdict.findings == ()


@pytest.mark.parametrize(
    ("conf", "remedy"),
    [
        ("max_split_size_mb=512", "write key:value with a colon"),
        ("Backend:native", "write the key as backend"),
        ("max_split_size:512", "write the key as max_split_size_mb"),
        ("per_process_memory_fraction:0.5", "it needs torch 2.10"),
        ("backend: cudaMallocAsync", "write backend:NAME first, once and without blanks"),
        ("backend:async", "write exactly backend:native or backend:cudaMallocAsync"),
        ("expandable_segments:true", "write exactly True or False"),
        ("max_split_size_mb:64;backend:native", "separate options by one comma"),
        ("backend:native,,max_split_size_mb:64", "remove the empty item"),
        ("max_split_size_mb", "write key:value with a colon"),
        ("max_split_size_mb:", "give the key a value"),
        ("max_split_size_mb:big", "give a plain number"),
        ("max_split_size_mb:20", "give a larger whole number of MiB"),
        ("bogus:1", "expandable_segments"),
    ],
)
def test_a_refusal_says_what_to_do(conf, remedy):
    assert remedy in judge(conf, "2.6.0").findings[0].message


@given(st.text())
def test_a_message_is_one_printable_line(conf):
    assert all(f.message.isprintable() and f.message.isascii() for f in judge(conf, "2.6.0").findings)


# The normalised conf


@pytest.mark.parametrize(
    ("conf", "normalised"),
    [
        ("", ""),
        (" max_split_size_mb : 512MB , backend:native,", "backend:native,max_split_size_mb:512"),
        ("max_split_size_mb:512,backend:cudaMallocAsync,pinned_use_hip_host_register:True",
         "backend:cudaMallocAsync,pinned_use_cuda_host_register:True"),
        ("max_split_size_mb:64,max_split_size_mb:128", "max_split_size_mb:128"),
        ("max_split_size_mb:-512", "max_split_size_mb:-1"),
        ("garbage_collection_threshold:.8x", "garbage_collection_threshold:0.8"),
        ("roundup_power2_divisions:[256:0]", ""),
        ("roundup_power2_divisions:[256:1,512:4,>:8]", "roundup_power2_divisions:[256:1,512:8,>:8]"),
        ("backend:async", None),
    ],
)  # fmt: skip
def test_the_exported_conf_has_nothing_accidental_in_it(conf, normalised):
    assert judge(conf, "2.6.0").normalised == normalised


@pytest.mark.parametrize("allocator", CONF_BY_ALLOCATOR)
def test_the_conf_of_an_allocator_word_gives_that_allocator(allocator):
    verdict = judge(CONF_BY_ALLOCATOR[allocator], "2.6.0+cu124")
    assert (verdict.allocator, verdict.normalised) == (allocator, CONF_BY_ALLOCATOR[allocator])


# Any string at all

PIECES = st.sampled_from(
    [name for key in KEYS for name in (key.name, key.alias) if name]
    + [*",:[]>; \t\n\"'=", ",", ":", ":", ",", "native", "cudaMallocAsync", "True", "False"]
    + [
        "512",
        "21",
        "64",
        "0.8",
        "-1",
        "+8",
        "0x1p-2",
        "1e-310",
        "nan",
        "inf",
        "512MB",
        "9" * 30,
        "\u0665",
        "\udc80",
    ]
)
OPTIONS = st.tuples(
    st.sampled_from([key.name for key in KEYS]),
    st.sampled_from(
        [
            "native",
            "cudaMallocAsync",
            "True",
            "False",
            "512",
            "64",
            "8",
            "0.8",
            "[256:1,512:2,>:8]",
            "[128:4]",
            "-1",
        ]
    ),
).map(":".join)
CONFS = st.one_of(
    st.text(),
    st.lists(PIECES, max_size=12).map("".join),
    st.lists(OPTIONS, max_size=5).map(",".join),
)
TORCHES = st.integers(0, NEWEST_MINOR + 1).map("2.{}".format)


def effective_settings(verdict):
    defaults = default_settings(int(verdict.torch.partition(".")[2]))
    ignored = NATIVE_SETTINGS if verdict.allocator == "async" else set()
    return {name: defaults[name] if name in ignored else value for name, value in verdict.settings.items()}


@settings(max_examples=1000)
@given(CONFS, TORCHES)
def test_no_string_makes_it_raise(conf, torch):
    verdict = judge(conf, torch)
    assert verdict.accepted == (verdict.settings is not None or "unknown-torch" in codes(verdict))
    assert verdict.accepted == (verdict.when is None)


@settings(max_examples=1000)
@given(CONFS, TORCHES)
def test_an_exported_conf_means_the_same_and_stays_as_it_is(conf, torch):
    before = judge(conf, torch)
    if before.normalised is None:
        return
    after = judge(before.normalised, torch)
    assert after.accepted
    assert (after.backend, after.allocator) == (before.backend, before.allocator)
    assert effective_settings(after) == effective_settings(before)
    assert after.normalised == before.normalised


@given(st.text(), st.text())
def test_no_version_makes_it_raise(conf, version):
    assert judge(conf, version).conf == conf


# The variables beside it


@pytest.mark.parametrize(
    ("environ", "torch", "expected"),
    [
        ({}, "2.6", []),
        ({"PYTORCH_CUDA_ALLOC_CONF": "backend:native"}, "2.6", []),
        ({"PYTORCH_ALLOC_CONF": ""}, "2.6", ["alloc-conf-unread"]),
        ({"PYTORCH_ALLOC_CONF": "x"}, "2.9.1", ["alloc-conf-unread"]),
        ({"PYTORCH_ALLOC_CONF": "x"}, "2.10", []),
        ({"PYTORCH_ALLOC_CONF": "x", "PYTORCH_CUDA_ALLOC_CONF": "y"}, "2.13", ["alloc-conf-overruled"]),
        ({"PYTORCH_HIP_ALLOC_CONF": "x"}, "2.6", ["hip-conf-unread"]),
        ({"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}, "2.6", ["caching-disabled"]),
        ({"PYTORCH_NO_CUDA_MEMORY_CACHING": "0"}, "2.6", ["caching-disabled"]),
        ({"PYTORCH_NO_CUDA_MEMORY_CACHING": ""}, "2.11", ["caching-disabled"]),
    ],
)
def test_a_neighbouring_variable_is_warned_about(environ, torch, expected):
    found = judge_environment(environ, torch)
    assert [f.code for f in found] == expected
    assert {f.severity for f in found} <= {"warn"}
    assert all(f.key in f.message for f in found)


# Cost


def test_judging_takes_at_most_a_millisecond_a_string():
    start = time.process_time()
    for case in CASES:
        judge(case["conf"], "2.6.0")
    assert (time.process_time() - start) / len(CASES) < 0.001


def test_importing_it_pulls_in_nothing_heavy():
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import torch_pool.conf;"
        "print(*sorted({'re', 'typing', 'dataclasses', 'enum', 'collections', 'json'} & set(sys.modules)))"
    )
    command = [sys.executable, "-I", "-S", "-c", program, str(ROOT / "entrypoint")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
