import os
import signal
import time

import pytest
from torch_pool.child import Failure, ask


def test_an_answer_of_nested_plain_values_comes_back():
    assert ask(lambda: ("text", (1, None, ("deeper", True)))) == ("text", (1, None, ("deeper", True)))


def test_an_answer_larger_than_a_pipe_comes_back():
    assert ask(lambda: "x" * 1_000_000) == "x" * 1_000_000


def test_the_question_runs_in_another_process():
    assert ask(os.getpid) != os.getpid()


def test_a_child_that_hangs_is_given_up_in_time_and_ended():
    start = time.monotonic()
    reader, writer = os.pipe()
    failure = ask(lambda: (os.set_inheritable(writer, True), time.sleep(60)), limit_seconds=0.2)
    os.close(writer)
    assert failure == Failure("hung", None, "no answer within 0.2 s")
    assert time.monotonic() - start < 1
    assert os.read(reader, 1) == b"", "the child still holds its end of the pipe"
    os.close(reader)


def test_no_child_is_left_behind():
    ask(lambda: 1)
    ask(lambda: time.sleep(60), limit_seconds=0.05)
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_a_child_that_crashes_is_told_from_one_that_refuses():
    assert ask(lambda: os.kill(os.getpid(), signal.SIGKILL)) == Failure(
        "crashed", 9, "the child ended with status -9"
    )
    assert ask(lambda: Failure("refused", 999, "nvmlInit_v2")) == Failure("refused", 999, "nvmlInit_v2")


def test_a_bug_in_the_question_is_named():
    assert ask(lambda: 1 / 0) == Failure("crashed", None, "ZeroDivisionError: division by zero")


def test_what_the_child_prints_is_not_seen(capfd):
    ask(lambda: os.write(1, b"stdout") + os.write(2, b"stderr"))
    assert capfd.readouterr() == ("", "")
