"""The in-process hook, in real interpreters that the real .pth starts; torch itself is a small stand-in.

With the real torch: tests/image/test_selftest.py; with a GPU: tests/gpu.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch_pool_hook
from torch_pool_hook import MEANINGS, meaning

SITE = Path(__file__).parents[2] / "entrypoint" / "site"
FAKE = Path(__file__).parents[1] / "data" / "fakes" / "torch_small.py"
CONF = "PYTORCH_CUDA_ALLOC_CONF"


class OutOfMemoryError(RuntimeError):
    """Named as torch's."""


@pytest.fixture
def python(tmp_path):
    """Runs a program in a Python whose site packages hold the hook, and a small torch."""
    site = tmp_path / "site"
    shutil.copytree(SITE, site)
    shutil.copy(FAKE, site / "torch.py")
    at_start = f"import site, sys; site.addsitedir({str(site)!r}); site.addsitedir({str(site)!r})"

    def run(program, **environ):
        (tmp_path / "sitecustomize.py").write_text(at_start)
        environ = {
            "PATH": os.defpath,
            "PYTHONPATH": str(tmp_path),
            CONF: "backend:cudaMallocAsync",
            **environ,
        }
        command = [sys.executable, "-c", program]
        return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)

    return run


def reports(folder):
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


def test_off_means_that_nothing_of_it_is_there(python):
    program = "import sys; print('torch_pool_hook' in sys.modules, sys.excepthook is sys.__excepthook__)"
    assert python(program).stdout == "False True\n"
    assert python(program, TORCH_POOL_MEMORY="0.5", TORCH_POOL_HOOK="0").stdout == "True True\n"


def test_on_it_imports_no_torch_and_waits_once_however_often_it_is_started(python):
    finders = "[type(finder).__name__ for finder in sys.meta_path]"
    program = f"import sys; print('torch' in sys.modules, {finders}.count('TorchFinder'))"
    assert python(program, TORCH_POOL_HOOK="1").stdout == "False 1\n"


def test_torch_is_found_as_python_finds_it(python):
    program = (
        "import torch; from importlib.machinery import SourceFileLoader as S; "
        "print(type(torch.__spec__.loader) is S, torch.__file__.endswith('torch.py'), torch.__version__)"
    )
    assert python(program, TORCH_POOL_HOOK="1").stdout == "True True 2.6.0+cu124\n"


def test_a_program_that_looks_for_torch_first_is_followed_all_the_same(python):
    """As transformers does, and many others."""
    look = "import importlib.util as u; u.find_spec('torch'); u.find_spec('torch')"
    program = f"{look}; import torch; torch.cuda.start()"
    ended = python(f"{program}; print(torch.cuda.shares)", TORCH_POOL_MEMORY="0.5")
    assert (ended.stdout, ended.stderr) == ("{0: 0.5}\n", "")


def test_a_torch_that_is_not_there_is_pythons_own_error(python):
    ended = python("import sys; sys.path[:] = []; import torch", TORCH_POOL_HOOK="1")
    assert ended.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'torch'"


@pytest.mark.parametrize(
    ("memory", "environ", "shares", "said"),
    [
        ("0.5", {}, {0: 0.5}, ""),
        ("20GiB", {}, {0: 0.25}, ""),
        ("100GiB", {}, {0: 1.0}, ""),
        ("0.5", {"FAKE_DEVICES": "4"}, {0: 0.5}, "caps cuda:0 only, of 4 devices"),
        ("0.5", {"FAKE_DEVICES": "4", "LOCAL_RANK": "2"}, {2: 0.5}, ""),
        ("half", {}, {}, "TORCH_POOL_MEMORY=half is not applied: ValueError"),
        ("0.5", {"FAKE_FAILURE": "1"}, {}, "is not applied: RuntimeError: invalid device ordinal"),
    ],
)
def test_the_cap_is_applied_when_cuda_starts_and_not_before(python, memory, environ, shares, said):
    program = (
        "import torch; before = dict(torch.cuda.shares); torch.cuda.start(); print(before, torch.cuda.shares)"
    )
    ended = python(program, TORCH_POOL_MEMORY=memory, **environ)
    assert (ended.returncode, ended.stdout) == (0, f"{{}} {shares}\n")
    assert said in ended.stderr
    assert bool(said) == bool(ended.stderr)


def test_it_writes_down_what_torch_really_used(python, tmp_path):
    program = (
        f"import os; os.environ['{CONF}'] = 'backend:native'; import torch; torch.cuda.start(); "
        f"os.environ['{CONF}'] = 'late'"
    )
    python(program, TORCH_POOL_HOOK="1", TORCH_POOL_HOOK_REPORT=str(tmp_path), TORCH_POOL_MEMORY="0.5")
    (told,) = reports(tmp_path)
    assert told["start"]["conf"] == "backend:cudaMallocAsync"
    assert (told["load"]["conf"], told["load"]["backend"]) == ("backend:native", "native")
    assert told["load"]["file"] == str(tmp_path / "site" / "torch.py")
    assert told["cuda"]["cap"] == {"device": 0, "share": 0.5}
    assert told["exit"]["conf"] == "late"
    assert told["exit"]["memory"] == {"reserved": 2 << 20, "allocations": 1, "expandable": False}


def test_a_program_that_loads_no_torch_leaves_no_report(python, tmp_path):
    python("pass", TORCH_POOL_HOOK="1", TORCH_POOL_HOOK_REPORT=str(tmp_path))
    assert reports(tmp_path) == []


def test_a_report_that_cannot_be_written_is_one_line_and_no_error(python):
    ended = python("import torch", TORCH_POOL_HOOK="1", TORCH_POOL_HOOK_REPORT="/nonexistent")
    assert ended.returncode == 0
    assert "/nonexistent cannot be written: No such file or directory" in ended.stderr


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RuntimeError("cudaMallocAsync does not yet support checkPoolLiveAllocations. If"), "CUDA graphs"),
        (RuntimeError("cudaMallocAsync does not yet support recordHistory. If"), "memory history"),
        (RuntimeError("cudaMallocAsync does not yet support shareIpcHandle. If"), "shared between processes"),
        (RuntimeError("cudaMallocAsync does not yet support getIpcDevPtr. If"), "shared between processes"),
        (RuntimeError("cudaMallocAsync does not yet support ensureExistsAndIncrefPool"), "MemPool"),
        (
            RuntimeError("cudaMallocAsync does not yet support somethingNew"),
            "TORCH_POOL_ALLOCATOR=expandable",
        ),
        (RuntimeError("Calling snapshot with backend:cudaMallocAsync is not meaningful."), "snapshots"),
        (RuntimeError("config[i] == get()->name() INTERNAL ASSERT FAILED at x"), "changed after torch"),
        (RuntimeError("Unrecognized CachingAllocator option: bogus"), "torch-pool check CONF"),
        (RuntimeError("stoi"), "a number"),
        (RuntimeError("pidfd_getfd: Operation not permitted"), "--cap-add SYS_PTRACE"),
        (RuntimeError("NVML_SUCCESS == r INTERNAL ASSERT FAILED at x"), "out of memory"),
        (OutOfMemoryError("Allocation on device "), "out of memory"),
        (RuntimeError("stoicism"), None),
        (OutOfMemoryError("CUDA out of memory. Tried to allocate"), None),
        (ValueError("x"), None),
    ],
)
def test_well_known_errors_have_a_meaning_and_others_none(error, said, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", sys)
    told = meaning(error)
    assert (told is None) == (said is None)
    assert said is None or said in told


def test_the_meaning_of_what_led_to_an_error_is_told():
    error = ValueError("the profiler failed")
    error.__cause__ = RuntimeError("cudaMallocAsync does not yet support recordHistory")
    assert "memory history" in meaning(error)


def test_a_bad_number_without_torch_is_the_programs_own():
    assert "torch" not in sys.modules
    assert meaning(ValueError("stoi")) is None


def test_what_a_program_has_put_aside_is_not_told():
    error = ValueError("x")
    error.__context__ = RuntimeError("cudaMallocAsync does not yet support recordHistory")
    assert "memory history" in meaning(error)
    error.__suppress_context__ = True
    assert meaning(error) is None


def test_an_error_that_cannot_be_told_as_text_stays_what_it_is(python):
    program = "class Odd(Exception):\n    def __str__(self): raise KeyError('odd')\nimport torch\nraise Odd"
    plain, hooked = (python(program, **settings).stderr for settings in ({}, {"TORCH_POOL_HOOK": "1"}))
    assert hooked == plain


def test_a_finder_of_the_old_protocol_does_not_matter(python):
    old = "type('Old', (), {'find_module': lambda *names: None})()"
    program = f"import sys; sys.meta_path.insert(1, {old}); import torch; print(torch.__version__)"
    assert python(program, TORCH_POOL_HOOK="1").stdout == "2.6.0+cu124\n"


def test_every_meaning_says_what_to_do():
    remedies = ("-e TORCH_POOL_ALLOCATOR=", "with -e", "torch-pool check", "use less")
    assert all(any(word in told for word in remedies) for _, told in MEANINGS)


@pytest.mark.parametrize("place", ["main", "thread"])
def test_the_exception_itself_stays_what_it_is(python, place):
    fail = "def fail(): raise RuntimeError('stoi')\nimport torch, threading\n"
    call = "fail()" if place == "main" else "t = threading.Thread(target=fail); t.start(); t.join()"
    plain, hooked = (python(fail + call, **settings).stderr for settings in ({}, {"TORCH_POOL_HOOK": "1"}))
    assert hooked.splitlines()[:-1] == plain.splitlines()
    assert hooked.splitlines()[-1].startswith("torch-pool: a number in PYTORCH_CUDA_ALLOC_CONF")


def test_the_hook_needs_nothing_of_the_package():
    source = Path(torch_pool_hook.__file__).read_text()
    assert "import torch_pool" not in source
    assert "from torch_pool" not in source
