"""The self-test on a real GPU: what it proves, and that each check can fail."""

import subprocess
import sys

import pytest

ALLOCATORS = ("async", "native", "expandable")
CONF = "PYTORCH_CUDA_ALLOC_CONF"

BEFORE_TORCH = "import os, sys\nif sys.argv[0] == '-c':\n    "
"""At the start of a fresh process of the self-test, before torch is loaded."""
USE = "import torch; x = torch.ones(1 << 20, device='cuda'); print(x.sum().item())"


def after_torch(line):
    """Python that runs once torch has been loaded in a fresh process of the self-test."""
    return f"{BEFORE_TORCH}import torch; {line}\n"


@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_every_allocator_is_proved(torch_pool, results, allocator):
    ended = torch_pool("selftest", "--json", "--allocator", allocator, TORCH_POOL_ALLOCATOR=allocator)
    results.setdefault("selftest", {})[allocator] = ended.report
    assert (ended.status, ended.report["verdict"], ended.stderr) == (0, "proved", "")
    names = {proof["name"] for proof in ended.report["proofs"] if proof["status"] == "proved"}
    assert {"backend", "parse", "devices", "pools", "pointer", "statistics", "release"} <= names
    assert ("segments" in names) == (allocator != "async")


@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_the_checks_take_at_most_a_second_beyond_the_import(torch_pool, results, allocator):
    torch_pool("selftest", TORCH_POOL_ALLOCATOR=allocator)
    seconds = torch_pool("selftest", "--json", TORCH_POOL_ALLOCATOR=allocator).report["seconds"]
    checks = sum(value for question, value in seconds.items() if question != "load")
    results.setdefault("seconds", {})[allocator] = {**seconds, "all checks": round(checks, 4)}
    assert checks <= 1


@pytest.mark.parametrize(
    ("at_start", "environ", "red"),
    [
        (f"{BEFORE_TORCH}sys.modules['torch'] = None", {}, {"torch"}),
        (
            f"{BEFORE_TORCH}os.environ['{CONF}'] = 'backend:native'",
            {},
            {"backend", "pointer", "statistics"},
        ),
        (
            f"{BEFORE_TORCH}os.environ['{CONF}'] = 'backend:native'",
            {"TORCH_POOL_ALLOCATOR": "expandable"},
            {"backend", "segments"},
        ),
        (after_torch(f"os.environ['{CONF}'] = 'backend:native'"), {}, {"backend", "parse"}),
        (after_torch("torch.cuda.empty_cache = lambda: None"), {}, {"release"}),
        (f"{BEFORE_TORCH}os.environ['CUDA_VISIBLE_DEVICES'] = ''", {}, {"devices"}),
        ("", {"TORCH_POOL_MEMORY": "0.25"}, {"cap"}),
        ("", {"CUDA_VISIBLE_DEVICES": "7"}, {"settings (gpu-hidden)"}),
        ("", {"CUDA_VISIBLE_DEVICES": "0,0"}, {"settings (gpu-hidden)"}),
        (
            "",
            {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "TORCH_POOL_ALLOCATOR": "native"},
            {"settings (caching-disabled)", "release"},
        ),
        ("", {CONF: "backend:cudaMallocAsync,bogus:1"}, {"settings (torch-refuses)", "parse"}),
        ("", {CONF: "backend:native,bogus:1"}, {"settings (torch-refuses)", "parse"}),
    ],
)
def test_each_check_has_a_fault_that_turns_it_red(torch_pool, at_start, environ, red):
    ended = torch_pool("selftest", "--json", at_start=at_start, **environ)
    assert (ended.status, ended.report["verdict"]) == (1, "disproved")
    assert red <= ended.disproved
    faults = [proof for proof in ended.report["proofs"] if proof["status"] == "disproved"]
    assert all(proof["remedy"] for proof in faults)


def test_a_crash_hides_no_other_check(torch_pool):
    crash = after_torch("torch.cuda.memory._set_allocator_settings = lambda conf: os.abort()")
    ended = torch_pool("selftest", "--json", at_start=crash)
    assert ended.disproved == {"parse"}
    (parse,) = [proof for proof in ended.report["proofs"] if proof["name"] == "parse"]
    assert "crashed with signal 6" in parse["found"]


@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_the_memory_cap_is_applied_and_is_a_limit(torch_pool, results, allocator):
    settings = {"TORCH_POOL_ALLOCATOR": allocator, "TORCH_POOL_MEMORY": "4GiB"}
    ended = torch_pool("selftest", "--json", **settings)
    results.setdefault("cap", {})[allocator] = ended.report["proofs"][-1]
    assert (ended.status, ended.report["proofs"][-1]["name"]) == (0, "cap")
    over = "import torch; torch.empty(5 << 30, dtype=torch.uint8, device='cuda')"
    program = torch_pool("selftest", "--json", "--", sys.executable, "-c", over, **settings)
    assert "OutOfMemoryError" in program.stderr
    proofs = {proof["name"]: proof["status"] for proof in program.report["proofs"]}
    assert (proofs["cap"], proofs["end"]) == ("proved", "note")


# The user's own program


@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_a_program_is_proved_by_what_it_used(torch_pool, allocator):
    ended = torch_pool("selftest", "--json", "--", sys.executable, "-c", USE, TORCH_POOL_ALLOCATOR=allocator)
    assert (ended.status, ended.disproved) == (0, set())
    assert "1048576.0" in ended.stderr


@pytest.mark.parametrize(
    ("program", "red"),
    [
        (f"import os; os.environ['{CONF}'] = 'backend:native'; {USE}", {"backend", "memory"}),
        (f"import os, torch; os.environ['{CONF}'] = 'expandable_segments:True'; {USE}", {"late"}),
        (f"import os; {USE}; os.environ['CUDA_VISIBLE_DEVICES'] = '1'", {"late"}),
    ],
)
def test_a_program_that_sets_its_own_conf_is_found_out(torch_pool, program, red):
    ended = torch_pool("selftest", "--json", "--", sys.executable, "-c", program)
    assert ended.status == 1
    assert red <= ended.disproved


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("import torch; torch.ones(1, device='cuda'); torch.cuda.memory_snapshot()", "memory snapshots need"),
        (
            "import torch; torch.ones(1, device='cuda').untyped_storage()._share_cuda_()",
            "cannot be shared between processes",
        ),
        (
            f"import os, torch; os.environ['{CONF}'] = 'backend:native'; torch.empty(1, pin_memory=True)",
            "the conf changed after torch was loaded",
        ),
    ],
)
def test_a_well_known_error_gets_one_line_with_its_meaning(torch_pool, program, said):
    ended = torch_pool("run", sys.executable, "-c", program, TORCH_POOL_HOOK="1")
    assert ended.status == 1
    last = ended.stderr.splitlines()[-1]
    assert last.startswith("torch-pool: ")
    assert said in last


def test_the_hook_starts_no_cuda(torch_pool):
    """The driver knows whether this process has a context."""
    ask = (
        "import ctypes, torch; cuda = ctypes.CDLL('libcuda.so.1'); cuda.cuInit(0); "
        "flags, active = ctypes.c_uint(), ctypes.c_int(); "
        "cuda.cuDevicePrimaryCtxGetState(0, ctypes.byref(flags), ctypes.byref(active)); "
        "print('context', active.value, torch.cuda.is_initialized())"
    )
    settings = {"TORCH_POOL_HOOK": "1", "TORCH_POOL_MEMORY": "0.5"}
    assert torch_pool("run", sys.executable, "-c", ask, **settings).stdout == "context 0 False\n"


# What works under which allocator (C07)

REFUSED_BY_ASYNC = {
    "compile-reduce-overhead",
    "cuda-ipc",
    "mempool",
    "memory-snapshot",
    "memory-history",
    "oom-observer",
    "auto-batch-size",
}


@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_what_works_is_measured_and_nothing_crashes(torch_pool, results, allocator):
    ended = torch_pool("selftest", "--capabilities", "--json", TORCH_POOL_ALLOCATOR=allocator)
    assert ended.status == 0
    found = ended.report["capabilities"]
    results.setdefault("capabilities", {})[allocator] = found
    expected = REFUSED_BY_ASYNC if allocator == "async" else set()
    assert {capability["name"] for capability in found if capability["result"] != "works"} == expected
    assert all(capability["detail"] for capability in found if capability["result"] != "works")


def test_the_junit_file_counts_what_was_proved(torch_pool, tmp_path):
    ended = torch_pool("selftest", "--junit", tmp_path / "junit.xml")
    text = (tmp_path / "junit.xml").read_text()
    assert ended.status == 0
    assert 'failures="0" errors="0" skipped="0"' in text


def test_plain_python_is_not_slowed_by_an_import_of_torch(torch_version):
    """The hook alone loads no torch."""
    program = (
        "import sys; sys.path.insert(0, 'entrypoint/site'); import torch_pool_hook; torch_pool_hook.start(); "
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", program + "print('torch' in sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "False\n"
