"""Each check of the self-test, proved and with a fault that turns it red."""

import pytest
from torch_pool.finding import Finding
from torch_pool.interrogation import Answer
from torch_pool.nvml import Gpu
from torch_pool.proof import Proof, verdict
from torch_pool.proof_settings import prove_allocator, prove_environment, prove_settings
from torch_pool.proof_torch import (
    prove_cap,
    prove_devices,
    prove_parse,
    prove_placement,
    prove_release,
    prove_start,
    prove_torch,
)
from torch_pool.selftest import prove, split_command, without_backend
from torch_pool.subject import Subject, misspelt

ASYNC, NATIVE, EXPANDABLE = "backend:cudaMallocAsync", "backend:native", "expandable_segments:True"
CONF = "PYTORCH_CUDA_ALLOC_CONF"
GIB = 1 << 30
UUID = "0a" * 16
VENDORS = ("ROCR", "HIP", "GPU", "ASCEND", "ASCEND_RT", "NPU", "MUSA", "TPU", "HABANA", "ORIG_CUDA")


def subject(allocator="async", **changes):
    conf = {"async": ASYNC, "native": NATIVE, "expandable": EXPANDABLE}[allocator]
    backend = "cudaMallocAsync" if allocator == "async" else "native"
    gpus = (Gpu(0, f"GPU-{UUID}"),)
    base = Subject(
        "infer", allocator, backend, conf, "baked profile", {CONF: conf}, "2.6.0", gpus=gpus, site_dir="/site"
    )
    return base._replace(**changes)


GIVEN = dict.fromkeys(("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "PYTORCH_NO_CUDA_MEMORY_CACHING"))


def loaded(**changes):
    values = {
        "torch": "2.6.0",
        "file": "/site/torch/__init__.py",
        "backend": "cudaMallocAsync",
        "conf": ASYNC,
    }
    return Answer({**values, "sitecustomize": None, "given": GIVEN, "hook": True, **changes})


def seen(**changes):
    return Answer({"devices": [{"ordinal": 0, "name": "H200", "uuid": UUID, "pools": True, **changes}]})


PLACES = {
    "async": {"in_pool": True, "in_default_pool": True, "reserved": 32, "allocations": 0},
    "native": {
        "in_pool": False,
        "in_default_pool": False,
        "reserved": 2,
        "allocations": 1,
        "segment": True,
        "expandable": False,
    },
}
PLACES["expandable"] = {**PLACES["native"], "expandable": True}


def placed(kind, **changes):
    return Answer({"devices": [{"ordinal": 0, **PLACES[kind], **changes}]})


def reserved(*numbers, piece=256):
    return Answer({"piece": piece, "reserved": list(numbers)})


def red(proofs):
    return {proof.name for proof in proofs if proof.status == "disproved"}


@pytest.mark.parametrize("allocator", PLACES)
def test_memory_where_it_belongs_is_proved(allocator):
    proofs = prove_placement(subject(allocator), placed(allocator))
    assert {proof.status for proof in proofs} == {"proved"}
    assert ("segments" in {proof.name for proof in proofs}) == (allocator != "async")


@pytest.mark.parametrize(
    ("expected", "found", "faults"),
    [
        ("async", "native", {"pointer", "statistics"}),
        ("async", "expandable", {"pointer", "statistics"}),
        ("native", "async", {"pointer", "statistics", "segments"}),
        ("native", "expandable", {"segments"}),
        ("expandable", "native", {"segments"}),
    ],
)
def test_memory_of_another_allocator_is_disproved(expected, found, faults):
    proofs = prove_placement(subject(expected), placed(found))
    assert red(proofs) == faults
    assert all("on device 0" in proof.remedy for proof in proofs if proof.status == "disproved")


def test_memory_in_a_pool_that_is_not_the_default_one_is_disproved():
    pointer, *_ = prove_placement(subject(), placed("async", in_default_pool=False))
    assert (pointer.status, pointer.found) == ("disproved", "another memory pool")


def test_the_first_device_that_differs_is_named():
    places = Answer({"devices": [{"ordinal": n, **PLACES["async" if n < 2 else "native"]} for n in range(3)]})
    pointer, *_ = prove_placement(subject(), places)
    assert pointer.remedy.startswith("on device 2: ")


@pytest.mark.parametrize(
    ("change", "check", "remedy"),
    [
        ({"torch": "2.13.0"}, "torch", "take /site/torch/__init__.py off PYTHONPATH"),
        ({"file": "/seed/torch/__init__.py"}, "torch", "take /seed/torch/__init__.py off PYTHONPATH"),
        ({"file": "/site/torch.py"}, "torch", "another torch"),
        ({"backend": "native", "conf": NATIVE}, "backend", ".pth file"),
        ({"backend": "native", "conf": NATIVE, "sitecustomize": "/s.py"}, "backend", "/s.py"),
        ({"backend": "pluggable"}, "backend", "change_current_allocator"),
        ({"backend": None}, "backend", "built without CUDA"),
    ],
)
def test_a_torch_that_is_not_as_set_is_disproved(change, check, remedy):
    assert red(prove_torch(subject(), loaded())) == set()
    (proof,) = [proof for proof in prove_torch(subject(), loaded(**change)) if proof.status == "disproved"]
    assert (proof.name, remedy in proof.remedy) == (check, True)


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("CUDA_VISIBLE_DEVICES", "", "CUDA_VISIBLE_DEVICES="),
        ("CUDA_DEVICE_ORDER", None, "CUDA_DEVICE_ORDER=unset"),
        ("PYTORCH_NO_CUDA_MEMORY_CACHING", "1", "PYTORCH_NO_CUDA_MEMORY_CACHING=1"),
    ],
)
def test_what_changes_when_python_starts_is_disproved(name, value, found):
    launch = subject(environ={"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
    kept = {**GIVEN, **launch.environ}
    assert prove_start(launch, loaded(given=kept)).status == "proved"
    proof = prove_start(launch, loaded(given={**kept, name: value}, sitecustomize="/s.py"))
    assert (proof.status, proof.found, proof.remedy) == ("disproved", found, "look into /s.py")


def test_a_torch_that_does_not_load_is_the_only_fault():
    answers = {"load": Answer({}, "ImportError: libcudnn.so.9"), "parse": Answer({}, "ImportError: libcudnn")}
    torch, *rest = prove(subject(), answers, quick=True)
    assert (torch.name, torch.status, torch.found) == ("torch", "disproved", "ImportError: libcudnn.so.9")
    assert {proof.status for proof in rest} == {"not provable"}


@pytest.mark.parametrize("allocator", PLACES)
@pytest.mark.parametrize("failing", ["load", "devices", "placement", "release", "cap", None])
def test_the_checks_have_the_same_names_whatever_fails(allocator, failing):
    answers = everything(allocator) | ({failing: Answer({}, "crashed", crashed=True)} if failing else {})
    names = [proof.name for proof in prove(subject(allocator, memory="0.5"), answers, quick=False)]
    whole = {
        proof.name for proof in prove(subject(allocator, memory="0.5"), everything(allocator), quick=False)
    }
    assert set(names) == whole
    assert len(names) == len(whole)


def test_after_a_crash_of_the_devices_the_later_answers_count():
    crashed = {**everything("async"), "devices": Answer({}, "crashed", crashed=True)}
    proofs = {proof.name: proof.status for proof in prove(subject(), crashed, quick=False)}
    assert (proofs["devices"], proofs["pointer"], proofs["release"]) == ("disproved", "proved", "proved")


def everything(allocator):
    """All answers, as of a machine with a GPU on which all is well."""
    return {
        "load": loaded(),
        "parse": Answer({"warning": None}),
        "devices": seen(),
        "placement": placed(allocator),
        "release": reserved(32, 288, 288, 0),
        "cap": held(0.5),
    }


@pytest.mark.parametrize(
    ("parse", "rest", "status"),
    [
        (Answer({"warning": None}), None, "proved"),
        (Answer({}, "RuntimeError: stoi"), None, "disproved"),
        (Answer({"unseen": "no driver"}), None, "not provable"),
        (Answer({"unseen": "no driver"}), Answer({"warning": None}), "not provable"),
        (Answer({"unseen": "no driver"}), Answer({}, "RuntimeError: Unrecognized"), "disproved"),
        (Answer({}, "crashed with signal 11", crashed=True), None, "disproved"),
    ],
)
def test_the_parse_is_what_torch_says_of_it(parse, rest, status):
    assert prove_parse(subject(), parse, rest).status == status


@pytest.mark.parametrize(
    ("conf", "rest"),
    [(ASYNC, ""), (f"{ASYNC},a:1", "a:1"), (f"a:[1:2],{ASYNC},b:2", "a:[1:2],b:2"), ("a:1", "a:1")],
)
def test_the_options_beside_the_backend_are_found(conf, rest):
    assert without_backend(conf) == rest


def test_devices_are_compared_by_uuid():
    assert red(prove_devices(subject(), seen())) == set()
    assert red(prove_devices(subject(), seen(uuid="ff" * 16))) == {"devices"}
    assert red(prove_devices(subject(), Answer({"devices": []}))) == {"devices"}
    assert red(prove_devices(subject(), Answer({}, "CUDA error 999 from cuInit"))) == {"devices"}


def test_devices_that_nobody_can_name_are_not_provable():
    devices, _ = prove_devices(subject(gpus=None), seen())
    assert devices.status == "not provable"


@pytest.mark.parametrize(("allocator", "status"), [("async", "disproved"), ("native", "note")])
def test_a_gpu_without_memory_pools_is_a_fault_under_async_alone(allocator, status):
    _, pools = prove_devices(subject(allocator), seen(pools=False))
    assert (pools.status, pools.found) == (status, "not on device 0 (H200)")


@pytest.mark.parametrize(
    ("answer", "status", "remedy"),
    [
        (reserved(32, 288, 288, 0), "proved", ""),
        (reserved(0, 256, 0, 0), "disproved", "unset PYTORCH_NO_CUDA_MEMORY_CACHING"),
        (reserved(0, 256, 256, 256), "disproved", "empty_cache"),
        (reserved(), "not provable", ""),
        (Answer({"reserved": None}), "disproved", "change_current_allocator"),
        (Answer({}, "RuntimeError: CUDA error: operation not supported"), "disproved", "has no memory pools"),
        (Answer({}, "crashed with signal 11", crashed=True), "disproved", "torch-pool doctor"),
        (Answer({}, "OutOfMemoryError: CUDA out of memory"), "not provable", "free some memory"),
    ],
)
def test_freed_memory_stays_and_is_given_back(answer, status, remedy):
    proof = prove_release(answer)
    assert (proof.status, remedy in proof.remedy) == (status, True)


@pytest.mark.parametrize(
    ("memory", "share", "status"),
    [
        ("0.5", 0.5, "proved"),
        ("35GiB", 0.25, "proved"),
        ("0.5", 1.0, "disproved"),
        ("0.5", 1.2e8, "disproved"),
        ("0.0005", 0.0009, "disproved"),
        ("0.5", None, "not provable"),
    ],
)
def test_the_cap_is_compared_with_what_torch_holds(memory, share, status):
    proof = prove_cap(subject(memory=memory), loaded(), held(share))
    assert proof.status == status


def held(share):
    return Answer({"share": share, "total_bytes": 140 * GIB})


@pytest.mark.parametrize(
    ("environ", "remedy"), [({"TORCH_POOL_HOOK": "0"}, "unset TORCH_POOL_HOOK=0"), ({}, "put torch-pool.pth")]
)
@pytest.mark.parametrize("quick", [True, False])
def test_a_cap_without_the_hook_is_disproved_without_a_gpu(environ, remedy, quick):
    without = subject(memory="0.5", environ=environ)
    nothing = Answer({"devices": []})
    answers = {"load": loaded(hook=False), "parse": Answer({}), "devices": nothing}
    (proof,) = [proof for proof in prove(without, answers, quick=quick) if proof.name == "cap"]
    assert (proof.status, remedy in proof.remedy) == ("disproved", True)


def test_a_cap_under_async_says_what_it_counts():
    cap = held(0.5)
    assert "bytes that tensors ask for" in prove_cap(subject(memory="0.5"), loaded(), cap).found
    assert "bytes that tensors ask for" not in prove_cap(subject("native", memory="0.5"), loaded(), cap).found


@pytest.mark.parametrize(
    ("finding", "faults"),
    [
        (
            Finding("warn", "ignored-under-async", None, "a is ignored: remove it"),
            {"settings (ignored-under-async)"},
        ),
        (Finding("refuse", "torch-refuses", None, "a: remove it"), {"settings (torch-refuses)"}),
        (Finding("warn", "unknown-setting", None, "TORCH_POOL_X; known: Y"), {"settings (unknown-setting)"}),
        (Finding("warn", "gpu-hidden", None, "hidden; unset it"), {"settings (gpu-hidden)"}),
        (Finding("refuse", "gpu-no-driver", None, "no GPU; get one"), set()),
        (Finding("warn", "shm-small", None, "small: more"), set()),
        (Finding("warn", "no-memory-pools", None, "none: expandable instead"), set()),
        (Finding("note", "white-space", None, "a blank: remove it"), set()),
    ],
)
def test_what_a_launch_says_of_conf_and_devices_is_a_fault(finding, faults):
    assert red(prove_settings(subject(findings=(finding,)))) == faults


@pytest.mark.parametrize(
    ("allocator", "status", "whole"),
    [
        ("async", "note", "proved"),
        ("native", "disproved", "disproved"),
        ("expandable", "disproved", "disproved"),
    ],
)
def test_caching_turned_off_is_a_fault_only_where_the_allocator_heeds_it(allocator, status, whole):
    findings = (Finding("warn", "caching-disabled", None, "caching is off: unset it"),)
    proofs = prove_settings(subject(allocator, findings=findings))
    assert {proof.name: proof.status for proof in proofs}["settings (caching-disabled)"] == status
    assert verdict(proofs) == whole


@pytest.mark.parametrize(
    ("value", "machine", "status"),
    [
        ("0", "gpu-no-driver", "not provable"),
        ("1,0", "gpu-not-passed", "not provable"),
        ("GPU-0a", "gpu-no-driver", "not provable"),
        ("0", "gpu-old-driver", "disproved"),
        ("all", "gpu-no-driver", "disproved"),
        ("", "gpu-no-driver", "disproved"),
        ("-1", "gpu-no-driver", "disproved"),
        ("0,0", "gpu-no-driver", "disproved"),
    ],
)
def test_devices_that_a_machine_without_a_gpu_cannot_show_are_not_provable(value, machine, status):
    findings = tuple(Finding("warn", code, None, "none; get one") for code in (machine, "gpu-hidden"))
    proofs = prove_settings(subject(findings=findings, environ={"CUDA_VISIBLE_DEVICES": value}))
    assert {proof.name: proof.status for proof in proofs}["settings (gpu-hidden)"] == status
    assert ("settings" in {proof.name for proof in proofs}) == (status == "not provable")


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("PYTORCH_CUDA_ALLOC_CONFIG", True),
        ("pytorch_cuda_alloc_conf", True),
        ("CUDA_VISIBLE_DEVICE", True),
        (CONF, False),
        ("PYTORCH_CUDA_ALLOCATOR_CONF", True),
        ("CUDA_DEVICES_ORDER", True),
        ("PYTORCH_ALLOC_CONF", False),
        ("PYTORCH_HIP_ALLOC_CONF", False),
        ("PYTORCH_XPU_ALLOC_CONF", False),
        ("PYTORCH_MUSA_ALLOC_CONF", False),
        *((f"{vendor}_VISIBLE_DEVICES", False) for vendor in VENDORS),
        ("ROCM_DEVICE_ORDER", False),
        ("NVIDIA_VISIBLE_DEVICES", False),
        ("PATH", False),
    ],
)
def test_variables_that_nothing_reads_are_found_by_their_names(name, found):
    assert bool(misspelt({name: "x"})) == found


def test_an_allocator_that_the_caller_insists_on_is_proved_or_not():
    assert prove_allocator(subject()) == []
    assert red(prove_allocator(subject(wanted="async"))) == set()
    assert red(prove_allocator(subject("native", wanted="async"))) == {"allocator"}


def launched_root(tmp_path, environ, *, child=True):
    """A /proc with an init, and where `child` says so the launched command as its child."""
    (tmp_path / "proc/1/task/1").mkdir(parents=True)
    (tmp_path / "proc/1/task/1/children").write_text("7 " if child else "")
    process = tmp_path / "proc" / ("7" if child else "1")
    process.mkdir(exist_ok=True)
    pairs = [f"{name}={value}\0" for name, value in {"TORCH_POOL_LAUNCHED": "infer", **environ}.items()]
    (process / "environ").write_text("".join(pairs))
    return f"{tmp_path}/"


@pytest.mark.parametrize("child", [True, False])
def test_a_shell_is_compared_with_the_launched_command(tmp_path, child):
    root = launched_root(tmp_path, {CONF: NATIVE}, child=child)
    same = prove_environment(subject(), {CONF: NATIVE}, root)
    other = prove_environment(subject(), {CONF: ASYNC, "CUDA_VISIBLE_DEVICES": "1"}, root)
    assert (same.status, other.status) == ("proved", "disproved")
    assert other.expected == f"{CONF}={NATIVE}, CUDA_VISIBLE_DEVICES=unset"
    assert 'eval "$(torch-pool show --sh)"' in other.remedy


@pytest.mark.parametrize(
    ("launched", "lost"),
    [
        ({"TORCH_POOL_MEMORY": "0.5"}, "TORCH_POOL_MEMORY"),
        ({"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, "CUDA_DEVICE_ORDER"),
        ({"TORCH_POOL_LAUNCHED": "infer HOME=/tmp/home", "HOME": "/tmp/home"}, "HOME"),
    ],
)
def test_a_shell_that_lacks_anything_that_the_launch_made_is_told(tmp_path, launched, lost):
    root = launched_root(tmp_path, {CONF: ASYNC, **launched})
    proof = prove_environment(subject(), {CONF: ASYNC}, root)
    assert (proof.status, proof.found) == ("disproved", f"{lost}=unset")


def test_without_a_launched_command_a_difference_is_a_note(tmp_path):
    root = f"{tmp_path}/"
    assert prove_environment(subject(), {CONF: ASYNC}, root).status == "proved"
    assert prove_environment(subject(), {CONF: NATIVE}, root).status == "note"
    capped = subject(environ={CONF: ASYNC, "TORCH_POOL_MEMORY": "0.5"})
    assert prove_environment(capped, {CONF: ASYNC}, root).status == "note"


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        (["proved", "proved", "note"], "proved"),
        (["proved", "not provable"], "not provable"),
        (["proved", "not provable", "disproved"], "disproved"),
        (["note"], "not provable"),
        ([], "not provable"),
    ],
)
def test_one_hole_is_enough_for_no_proof(statuses, expected):
    assert verdict(Proof("x", "", status, "", "") for status in statuses) == expected


def test_without_a_gpu_nothing_that_needs_one_is_proved():
    nothing = {"devices": Answer({"devices": []}), "placement": Answer({"devices": []})}
    answers = {"load": loaded(), "parse": Answer({"warning": None}), "release": Answer({}), **nothing}
    proofs = prove(subject(gpus=(), memory="0.5"), answers, quick=False)
    unprovable = {proof.name for proof in proofs if proof.status == "not provable"}
    assert unprovable == {"devices", "pools", "pointer", "statistics", "release", "cap"}


@pytest.mark.parametrize("allocator", ["native", "expandable"])
def test_segments_are_named_as_not_provable_where_they_would_be_proved(allocator):
    answers = {"load": loaded(), "parse": Answer({"warning": None}), "devices": Answer({"devices": []})}
    proofs = prove(subject(allocator, gpus=()), answers, quick=False)
    assert "segments" in {proof.name for proof in proofs if proof.status == "not provable"}


def test_the_users_command_follows_two_dashes():
    assert split_command(["--json", "--", "python", "--", "-x"]) == (["--json"], ["python", "--", "-x"])
