"""What the self-test makes of the hook's report on a user's program."""

import os
import signal
import subprocess
import sys

import pytest
from torch_pool.program import Ran, prove_program, run
from torch_pool.proof import verdict
from torch_pool.refusal import Refusal
from torch_pool.subject import Subject

ASYNC, NATIVE = "backend:cudaMallocAsync", "backend:native"
SUBJECT = Subject("infer", "async", "cudaMallocAsync", ASYNC, "baked profile", {}, "2.6.0", site_dir="/site")
TORCH = {"torch": "2.6.0", "file": "/site/torch/__init__.py"}
CAPPED, CAP = SUBJECT._replace(memory="0.5"), {"device": 0, "share": 0.5}
MEMORY = {"reserved": 2, "allocations": 0}


def told(**changes):
    usual = {"conf": ASYNC, "visible": None}
    whole = {
        "pid": 7,
        "start": usual,
        "load": {**usual, **TORCH, "backend": "cudaMallocAsync"},
        "cuda": {**usual, "devices": 1},
        "exit": {**usual, "backend": "cudaMallocAsync", "memory": MEMORY},
    }
    kept = {name: value for name, value in whole.items() if changes.get(name, value) is not None}
    return {n: {**v, **changes.get(n, {})} if isinstance(v, dict) else v for n, v in kept.items()}


def prove(*reports, status=0, subject=SUBJECT):
    return {proof.name: proof for proof in prove_program(subject, Ran(status, reports))}


def test_a_program_that_used_what_was_set_is_proved():
    assert {name: proof.status for name, proof in prove(told()).items()} == {
        "torch": "proved",
        "backend": "proved",
        "late": "proved",
        "memory": "proved",
    }


@pytest.mark.parametrize(
    ("changes", "check", "remedy"),
    [
        ({"load": {"backend": "native", "conf": NATIVE}}, "backend", "before it imports torch"),
        (
            {"start": {"conf": NATIVE}, "load": {"backend": "native", "conf": NATIVE}},
            "backend",
            "what starts it",
        ),
        ({"load": {"file": "/venv/torch/__init__.py"}}, "torch", "another torch"),
        ({"load": {"torch": "2.7.0"}}, "torch", "another torch"),
        ({"exit": {"conf": NATIVE}}, "late", "with -e"),
        ({"exit": {"visible": "1"}}, "late", "with -e"),
        ({"exit": {"backend": "pluggable"}}, "late", "plugged-in"),
        ({"exit": {"memory": {"reserved": 2, "allocations": 1, "expandable": False}}}, "memory", "backend"),
        ({"exit": {"memory": {}}}, "memory", "backend"),
    ],
)
def test_each_check_of_a_program_can_fail(changes, check, remedy):
    proof = prove(told(**changes))[check]
    assert (proof.status, remedy in proof.remedy) == ("disproved", True)


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"cuda": None, "exit": {"memory": None}}, "started no CUDA"),
        ({"exit": None}, "did not end as programs do"),
        ({"exit": {"memory": {"reserved": 0, "allocations": 0}}}, "allocated nothing"),
    ],
)
def test_memory_that_nothing_is_known_of_is_not_provable(changes, found):
    proof = prove(told(**changes))["memory"]
    assert (proof.status, found in proof.found) == ("not provable", True)


@pytest.mark.parametrize(("cuda", "status"), [({}, "not provable"), ({"conf": NATIVE}, "disproved")])
def test_a_program_without_a_last_word_is_late_only_where_a_change_was_seen(cuda, status):
    assert prove(told(exit=None, cuda=cuda))["late"].status == status


def test_no_word_of_torch_is_not_provable():
    assert prove()["program"].status == "not provable"
    assert prove(told(load=None))["program"].status == "not provable"


def test_several_processes_are_told_apart():
    assert {"backend of 7", "backend of 8"} <= set(prove(told(), {**told(), "pid": 8}))


def test_a_helper_without_cuda_is_a_note_where_another_process_used_a_gpu():
    helper = {**told(cuda=None, exit=None), "pid": 6}
    alone, beside = prove(helper, subject=CAPPED), prove(helper, told(cuda={"cap": CAP}), subject=CAPPED)
    names = ("late", "memory", "cap")
    assert [alone[name].status for name in names] == ["not provable"] * 3
    assert [beside[f"{name} of 6"].status for name in names] == ["note"] * 3
    assert verdict(beside.values()) == "proved"


def test_a_process_that_used_cuda_and_says_nothing_of_it_is_no_helper():
    proofs = prove({**told(exit=None), "pid": 6}, told())
    assert proofs["memory of 6"].status == "not provable"


def test_a_program_that_fails_is_a_note():
    proof = prove(told(), status=3)["end"]
    assert (proof.status, proof.found) == ("note", "status 3")


@pytest.mark.parametrize(("cap", "status"), [({"device": 0, "share": 0.5}, "proved"), (None, "disproved")])
def test_the_cap_is_proved_by_the_hooks_own_word(cap, status):
    report = told(cuda={"cap": cap} if cap else {})
    assert prove(report, subject=SUBJECT._replace(memory="0.5"))["cap"].status == status


def test_a_cap_is_disproved_where_a_launch_has_the_hook_turned_off():
    off = SUBJECT._replace(memory="0.5", environ={"TORCH_POOL_HOOK": "0"})
    proof = prove(told(cuda={"cap": CAP}), subject=off)["cap"]
    assert (proof.status, proof.remedy) == ("disproved", "unset TORCH_POOL_HOOK")


def test_the_programs_output_goes_to_stderr(capfd):
    ran = run([sys.executable, "-c", "print('hello'); raise SystemExit(3)"], {"PATH": "/bin"})
    assert (ran.status, ran.told) == (3, ())
    assert capfd.readouterr() == ("", "hello\n")


SLEEP = "import time; print('up', flush=True); time.sleep(60)"
STUBBORN = f"import signal; signal.signal(signal.SIGINT, lambda *_: None); {SLEEP.replace('60', '1')}"
RUN = "import sys; from torch_pool.program import run; print(run(sys.argv[1:], {'PATH': '/bin'}))"


@pytest.mark.parametrize(
    ("number", "program", "status"),
    [(signal.SIGTERM, SLEEP, -15), (signal.SIGHUP, SLEEP, -1), (signal.SIGINT, STUBBORN, 0)],
)
def test_a_signal_ends_the_program_and_not_its_report(tmp_path, number, program, status):
    environ = {"PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", RUN, sys.executable, "-c", program]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env=environ, text=True, **pipes) as ours:
        assert ours.stderr.readline() == "up\n"
        ours.send_signal(number)
        said, complaint = ours.communicate(timeout=30)
    assert (ours.returncode, said, complaint) == (0, f"Ran(status={status}, told=())\n", "")
    assert list(tmp_path.iterdir()) == []


def test_a_program_that_is_not_there_is_refused_with_127():
    with pytest.raises(Refusal, match="'no-such-program' cannot be started") as refused:
        run(["no-such-program"], {"PATH": "/bin"})
    assert refused.value.status == 127
