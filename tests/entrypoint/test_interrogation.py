"""Questions to real processes: the fake is only what they run in torch's place."""

import os

import pytest
from torch_pool.interrogation import Answer, interrogate

PROBE = """
import json, os, sys
def tell(question, **values):
    line = json.dumps({"question": question, "seconds": 0.5, **values})
    os.write(int(sys.argv[1]), (line + "\\n").encode())
print("noise on stdout", flush=True)
for question in sys.argv[2:]:
    if question == "crash":
        os.abort()
    if question == "hang":
        import time; time.sleep(60)
    if question == "exit":
        sys.exit("torch said this")
    if question == "fail":
        tell(question, error="RuntimeError: stoi")
        break
    tell(question, pid=os.getpid(), path=sys.path[0])
"""


@pytest.fixture
def ask(tmp_path):
    probe = tmp_path / "probe.py"
    probe.write_text(PROBE)
    return lambda *questions, **limit: interrogate(questions, os.environ, probe=str(probe), **limit)


def test_one_process_answers_all(ask):
    answers = ask("a", "b")
    assert answers["a"].values == answers["b"].values
    assert (answers["a"].error, answers["a"].seconds) == (None, 0.5)


def test_a_program_in_this_directory_would_find_the_same_torch(ask):
    assert ask("a")["a"].values["path"] == ""


@pytest.mark.parametrize("fault", ["fail", "crash", "exit"])
def test_after_a_fault_the_rest_is_asked_in_a_new_process(ask, fault):
    answers = ask("a", fault, "b")
    assert list(answers) == ["a", fault, "b"]
    assert answers["b"].error is None
    assert answers["b"].values["pid"] != answers["a"].values["pid"]


def test_each_fault_is_told_by_how_it_came(ask):
    answers = ask("fail", "crash", "exit")
    assert answers["fail"] == Answer({}, "RuntimeError: stoi", seconds=0.5)
    assert answers["crash"].error.startswith("crashed with signal 6")
    assert answers["exit"].error == "ended with status 1: torch said this"
    assert [answers[name].crashed for name in ("fail", "crash", "exit")] == [False, True, True]


def test_a_process_that_hangs_is_given_up(ask):
    answers = ask("hang", limit_seconds=0.5)
    assert answers["hang"].error == "gave no answer within 0.5 s"
