"""The self-test in the image's real torch 2.6.0: what it proves without a GPU, and what it finds out.

Each seeded misconfiguration is named by a check, with its cause and what to do; docs/selftest.md lists them.
"""

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = pytest.mark.image

CONF = "PYTORCH_CUDA_ALLOC_CONF"
ASYNC, NATIVE = "backend:cudaMallocAsync", "backend:native"
PLUG = (
    "import torch; torch.cuda.memory.change_current_allocator("
    "torch.cuda.memory.CUDAPluggableAllocator('libc.so.6', 'malloc', 'free'))"
)


class Seed(NamedTuple):
    """A misconfiguration: the check that must find it, and words of the remedy."""

    name: str
    environ: dict[str, str]
    check: str
    remedy: str
    parse_fails: bool = False


def conf(value):
    return {CONF: value}


REFUSED, NO_EFFECT, HIDDEN = ("settings (torch-refuses)", "settings (no-effect)", "settings (gpu-hidden)")
SEEDS = [
    Seed("an unknown key", conf(f"{ASYNC},bogus:1"), REFUSED, "remove it", parse_fails=True),
    Seed("a backend in the wrong case", conf("backend:cudamallocasync"), REFUSED, ASYNC, parse_fails=True),
    Seed("a key in the wrong case", conf("Backend:native"), REFUSED, "backend", parse_fails=True),
    Seed("an equals sign", conf("max_split_size_mb=512"), REFUSED, "instead of =", parse_fails=True),
    Seed("a blank after the colon", conf("backend: cudaMallocAsync"), REFUSED, "without blanks"),
    Seed("two backends", conf(f"{NATIVE},{ASYNC}"), REFUSED, "once"),
    Seed("quotes in the value", conf(f'"{NATIVE}"'), "settings (literal-quotes)", "quotes", parse_fails=True),
    Seed("a number that is none", conf("max_split_size_mb:abc"), REFUSED, "plain number", parse_fails=True),
    Seed("a number out of range", conf("max_split_size_mb:20"), REFUSED, "larger", parse_fails=True),
    Seed("a value that is missing", conf("max_split_size_mb:"), REFUSED, "a value", parse_fails=True),
    Seed(
        "true in the wrong case", conf("expandable_segments:true"), REFUSED, "True or False", parse_fails=True
    ),
    Seed(
        "a blank as separator",
        conf("max_split_size_mb:64 backend:native"),
        REFUSED,
        "comma",
        parse_fails=True,
    ),
    Seed("a percentage", conf("garbage_collection_threshold:80%"), REFUSED, "fraction", parse_fails=True),
    Seed("a key of torch 2.10", conf("per_process_memory_fraction:0.5"), REFUSED, "2.10", parse_fails=True),
    Seed("a key of torch 2.11", conf("large_segment_size_mb:64"), REFUSED, "2.11", parse_fails=True),
    Seed(
        "an option that async ignores",
        conf(f"{ASYNC},max_split_size_mb:64"),
        "settings (ignored-under-async)",
        "native",
    ),
    Seed(
        "a harmful pair",
        conf("expandable_segments:True,max_split_size_mb:64"),
        "settings (expandable-with-max-split)",
        "remove max_split_size_mb",
    ),
    Seed("folklore", conf("max_split_size_mb:128"), "settings (max-split)", "leave it out"),
    Seed(
        "a threshold without a cap", conf("garbage_collection_threshold:0.8"), NO_EFFECT, "TORCH_POOL_MEMORY"
    ),
    Seed("a rounding without a limit", conf("max_non_split_rounding_mb:64"), NO_EFFECT, "remove it"),
    Seed("threads without their switch", conf("pinned_num_register_threads:8"), NO_EFFECT, "add that"),
    Seed(
        "an option that crashes",
        conf("pinned_use_background_threads:True"),
        "settings (crash-at-exit)",
        "remove it",
    ),
    Seed("a unit in a number", conf("max_split_size_mb:512MB"), "settings (accidental-value)", "plain value"),
    Seed("a key given twice", conf(f"{NATIVE},{NATIVE}"), "settings (duplicate-key)", "once"),
    Seed(
        "a list that swallows an entry",
        conf("roundup_power2_divisions:[256:1,512:2,>:4]"),
        "settings (lost-interval)",
        "before >",
    ),
    Seed(
        "caching turned off",
        {"PYTORCH_NO_CUDA_MEMORY_CACHING": "0", "TORCH_POOL_ALLOCATOR": "native"},
        "settings (caching-disabled)",
        "unset it",
    ),
    Seed("the new name of the variable", {"PYTORCH_ALLOC_CONF": ASYNC}, "settings (alloc-conf-unread)", CONF),
    Seed(
        "the variable of another platform",
        {"PYTORCH_HIP_ALLOC_CONF": ASYNC},
        "settings (hip-conf-unread)",
        CONF,
    ),
    Seed(
        "a misspelt variable", {"PYTORCH_CUDA_ALLOCATOR_CONF": NATIVE}, "settings (misspelt-variable)", CONF
    ),
    Seed(
        "a misspelt CUDA variable",
        {"CUDA_VISIBLE_DEVICE": "0"},
        "settings (misspelt-variable)",
        "CUDA_VISIBLE_DEVICES",
    ),
    Seed(
        "a misspelt setting",
        {"TORCH_POOL_ALOCATOR": "native"},
        "settings (unknown-setting)",
        "TORCH_POOL_ALLOCATOR",
    ),
    Seed("a misspelt allocator", {"TORCH_POOL_ALLOCATOR": "asnyc"}, "settings", "did you mean async"),
    Seed("an unknown profile", {"TORCH_POOL_PROFILE": "trian"}, "settings", "did you mean train"),
    Seed("a cap that is none", {"TORCH_POOL_MEMORY": "20GB"}, "settings", "20GiB"),
    Seed(
        "a profile of another backend",
        {"TORCH_POOL_PROFILE": "train", CONF: NATIVE},
        "settings (overruled)",
        "remove one of them",
    ),
    Seed(
        "a word and a conf that disagree",
        {"TORCH_POOL_ALLOCATOR": "async", CONF: NATIVE},
        "settings (overruled)",
        "remove one of them",
    ),
    Seed("devices hidden by a word", {"CUDA_VISIBLE_DEVICES": "all"}, HIDDEN, "list"),
    Seed("devices hidden by an empty value", {"CUDA_VISIBLE_DEVICES": ""}, HIDDEN, "empty"),
    Seed("devices hidden by a negative index", {"CUDA_VISIBLE_DEVICES": "-1"}, HIDDEN, "ends the list"),
]


def proofs(ended):
    return {proof["name"]: proof for proof in json.loads(ended.stdout)["proofs"]}


def disproved(ended):
    return {name: proof for name, proof in proofs(ended).items() if proof["status"] == "disproved"}


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: seed.name)
def test_a_misconfiguration_is_named_with_its_cause_and_remedy(run, seed):
    ended = run("infer", "torch-pool", "selftest", "--quick", "--json", environment=seed.environ)
    found = disproved(ended)
    assert (ended.status, ended.stderr) == (1, "")
    assert seed.check in found
    assert seed.remedy in f"{found[seed.check]['found']}; {found[seed.check]['remedy']}"
    assert ("parse" in found) == seed.parse_fails


@pytest.mark.parametrize(
    ("at_start", "check", "remedy"),
    [
        (f"import os; os.environ['{CONF}'] = '{NATIVE}'", "backend", "look into /seed/sitecustomize.py"),
        ("import os; os.environ['CUDA_VISIBLE_DEVICES'] = ''", "start", "look into /seed/sitecustomize.py"),
        (
            "import os; os.environ['PYTORCH_NO_CUDA_MEMORY_CACHING'] = '1'",
            "start",
            "look into /seed/sitecustomize.py",
        ),
        (f"import sys\nif sys.argv[0] == '-c': {PLUG}", "backend", "change_current_allocator"),
        ("import sys\nsys.modules['torch'] = None", "torch", "import torch"),
    ],
)
def test_what_a_sitecustomize_does_is_found_out(run, folder, at_start, check, remedy):
    (folder / "sitecustomize.py").write_text(at_start)
    options = {"volumes": {folder: "/seed"}, "environment": {"PYTHONPATH": "/seed"}}
    ended = run("infer", "torch-pool", "selftest", "--quick", "--json", **options)
    assert remedy in disproved(ended)[check]["remedy"]


def test_a_cap_that_nothing_applies_is_found_out_without_a_gpu(run):
    settings = {"TORCH_POOL_MEMORY": "0.5", "TORCH_POOL_HOOK": "0"}
    ended = run("infer", "torch-pool", "selftest", "--quick", "--json", environment=settings)
    assert "unset TORCH_POOL_HOOK=0" in disproved(ended)["cap"]["remedy"]


def test_another_torch_in_front_is_found_out(run, folder):
    (folder / "torch").mkdir()
    old = "__version__ = '1.0'"
    same = "class version: cuda = None\n__version__ = '2.6.0+cu124'"
    options = {"volumes": {folder: "/seed"}, "environment": {"PYTHONPATH": "/seed"}}
    for text, found in ((old, "has no attribute"), (same, "2.6.0+cu124 in /seed/torch/__init__.py")):
        (folder / "torch" / "__init__.py").write_text(text)
        ended = run("infer", "torch-pool", "selftest", "--quick", "--json", **options)
        assert found in disproved(ended)["torch"]["found"]


def test_the_callers_own_word_is_held_against_the_settings(run):
    ended = run(
        "infer",
        "torch-pool",
        "selftest",
        "--quick",
        "--json",
        "--allocator",
        "async",
        environment=conf(NATIVE),
    )
    assert disproved(ended)["allocator"]["remedy"] == "remove -e, or set TORCH_POOL_ALLOCATOR=async"


@pytest.mark.parametrize(
    ("program", "check", "found"),
    [
        (f"import os; os.environ['{CONF}'] = '{NATIVE}'; import torch", "backend", "native by"),
        (
            f"import os, torch; os.environ['{CONF}'] = '{NATIVE}'",
            "late",
            f"{NATIVE} set after torch was loaded",
        ),
        (PLUG, "late", "the allocator became pluggable"),
    ],
)
def test_what_the_users_own_program_does_is_found_out(run, folder, program, check, found):
    (folder / "app.py").write_text(f"{program}\nprint('the program ran')\n")
    options = {"volumes": {folder: "/seed"}}
    ended = run("infer", "torch-pool", "selftest", "--json", "--", "python", "/seed/app.py", **options)
    assert (ended.status, ended.stderr) == (1, "the program ran\n")
    assert found in disproved(ended)[check]["found"]


def test_a_program_started_with_another_conf_is_found_out(run):
    command = ["env", f"{CONF}={NATIVE}", "python", "-c", "import torch"]
    ended = run("infer", "torch-pool", "selftest", "--json", "--", *command)
    assert "was started with this value" in disproved(ended)["backend"]["remedy"]


def test_a_shell_beside_the_launch_is_told_how_to_get_what_it_sets(started, client):
    kept = started("infer", "sleep", "60", environment={"TORCH_POOL_ALLOCATOR": "native"})
    container = kept.get_wrapped_container()
    status, output = container.exec_run(["torch-pool", "selftest", "--quick", "--json"], demux=True)
    (proof,) = [p for p in json.loads(output[0])["proofs"] if p["name"] == "environment"]
    assert (status, proof["status"]) == (1, "disproved")
    assert (proof["expected"], proof["found"]) == (f"{CONF}={NATIVE}", f"{CONF}={ASYNC}")
    assert 'eval "$(torch-pool show --sh)"' in proof["remedy"]
    line = f"{proof['remedy'].partition('run ')[2].partition(' in this')[0]}; torch-pool selftest --quick"
    assert "environment" not in container.exec_run(["sh", "-c", line]).output.decode().splitlines()[-1]


# Without a GPU


def test_without_a_gpu_it_says_what_was_proved_and_what_was_not(image, run):
    ended = run(image, "torch-pool", "selftest", "--json")
    by_status = {name: proof["status"] for name, proof in proofs(ended).items()}
    assert (ended.status, json.loads(ended.stdout)["verdict"], ended.stderr) == (69, "not provable", "")
    # A launch of the image shared sets a cap, which no ENV can hold: that is a note.
    capped = {"environment"} if image == "shared" else set()
    proved = {name for name, status in by_status.items() if status == "proved"}
    assert {"settings", "environment", "torch", "start", "backend"} - proved <= capped
    assert {"parse", "devices", "pools", "pointer", "statistics", "release"} <= set(by_status)
    assert "disproved" not in by_status.values()


@pytest.mark.parametrize("word", ["native", "expandable"])
def test_without_a_driver_the_native_allocators_parse_is_proved(run, word):
    ended = run(
        "infer", "torch-pool", "selftest", "--quick", "--json", environment={"TORCH_POOL_ALLOCATOR": word}
    )
    assert (ended.status, proofs(ended)["parse"]["status"]) == (0, "proved")


def test_the_text_ends_with_the_verdict(run):
    lines = run("infer", "torch-pool", "selftest", "--quick").stdout.splitlines()
    assert lines[0] == f"profile infer, allocator async ({ASYNC}, from baked profile), torch 2.6.0+cu124"
    assert lines[-1] == "not provable here (5 proved, 1 not provable): parse"
    assert sum(line.startswith("✓ ") for line in lines) == 5


def test_the_junit_file_tells_failures_and_skips(run, folder):
    folder.chmod(0o777)
    command = ["torch-pool", "selftest", "--quick", "--junit", "/out/junit.xml"]
    settings = {"environment": conf(f"{ASYNC},bogus:1"), "volumes": {folder: "/out"}}
    assert run("infer", *command, **settings).status == 1
    suite = ET.parse(Path(folder) / "junit.xml").getroot()
    failed = {case.get("name") for case in suite if case.find("failure") is not None}
    assert failed == {"settings (torch-refuses)", "parse"}
    assert suite.get("failures") == "2"


def test_what_works_cannot_be_measured_without_a_gpu(run):
    ended = run("infer", "torch-pool", "selftest", "--capabilities", "--json")
    assert ended.status == 69
    assert {c["result"] for c in json.loads(ended.stdout)["capabilities"]} == {"not provable"}


# The in-process hook


def test_the_hook_is_off_unless_it_is_asked_for(run):
    program = "import sys; print('torch_pool_hook' in sys.modules, 'torch' in sys.modules)"
    assert run("infer", "python", "-c", program).stdout == "False False\n"
    for setting in ({"TORCH_POOL_HOOK": "1"}, {"TORCH_POOL_MEMORY": "0.5"}):
        assert run("infer", "python", "-c", program, environment=setting).stdout == "True False\n"


def test_a_well_known_error_gets_one_line_and_stays_what_it_is(run):
    program = (
        "import torch; print(torch.cuda.get_allocator_backend(), flush=True); "
        "torch.cuda.memory._set_allocator_settings('max_split_size_mb:abc')"
    )
    settings = {"TORCH_POOL_HOOK": "1", CONF: NATIVE}
    said = "a number in PYTORCH_CUDA_ALLOC_CONF is none"
    ended = run("infer", "python", "-c", program, environment=settings, expects=["Traceback", said])
    *_, error, meaning = ended.stderr.splitlines()
    assert (ended.status, ended.stdout, error) == (1, "native\n", "RuntimeError: stoi")
    assert meaning.startswith("torch-pool: a number in PYTORCH_CUDA_ALLOC_CONF is none or out of range")
