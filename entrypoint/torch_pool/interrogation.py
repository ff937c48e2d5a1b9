"""The interrogation: questions to the image's torch, each answered by a real process of it.

One process answers as many questions as it can. Where it fails or crashes the rest go on in a new one, so
that a fault hides nothing but itself and no answer comes from a torch that has failed before.
"""

import json
import os
import subprocess
import sys

from torch_pool.record import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

PROBE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_probe.py")
LIMIT_SECONDS = 300.0
"""For one process. Loading torch from a cold network disk can take a minute."""
# Not the path of the file: its folder would come first on sys.path, before the standard library.
_STARTER = "import sys; __file__ = sys.argv.pop(1); exec(compile(open(__file__).read(), __file__, 'exec'))"
_LAST_WORDS = 300


class Answer(NamedTuple):
    """`values` is what the probe told; `error` says why it told nothing. `seconds` is the question's own."""

    values: "Mapping[str, Any]"
    error: str | None = None
    crashed: bool = False
    seconds: float = 0.0


def interrogate(
    questions: "Sequence[str]",
    environ: "Mapping[str, str]",
    *,
    probe: str = PROBE,
    limit_seconds: float = LIMIT_SECONDS,
) -> dict[str, Answer]:
    """The answer to each question, from processes with this environment. Raises nothing."""
    answers: dict[str, Answer] = {}
    while len(answers) < len(questions):
        left = questions[len(answers) :]
        given, ended = _run([*starter(probe), "{fd}", *left], environ, limit_seconds)
        answers |= given
        if not any(answer.error for answer in given.values()) and len(given) < len(left):
            answers[left[len(given)]] = Answer({}, ended, crashed=True)
    return answers


def starter(probe: str) -> list[str]:
    """The command that runs a probe as a program of the user's would run, in this directory."""
    return [sys.executable, "-c", _STARTER, probe]


def describe_end(status: int, output: str) -> str:
    """How a process ended, with the last thing it said."""
    ended = f"crashed with signal {-status}" if status < 0 else f"ended with status {status}"
    lines = output.strip().splitlines()
    return f"{ended}: {lines[-1][-_LAST_WORDS:]}" if lines else ended


def _run(
    command: "Sequence[str]", environ: "Mapping[str, str]", limit_seconds: float
) -> tuple[dict[str, Answer], str]:
    """The answers of one process, and how it ended."""
    reader, writer = os.pipe()
    try:
        ended = _wait(
            [str(writer) if word == "{fd}" else word for word in command], environ, writer, limit_seconds
        )
    finally:
        os.close(writer)
    with open(reader, encoding="utf-8") as lines:
        return dict(_parse(line) for line in lines if line.endswith("\n")), ended


def _wait(command: "Sequence[str]", environ: "Mapping[str, str]", writer: int, limit_seconds: float) -> str:
    try:
        done = subprocess.run(
            command,
            env=environ,
            pass_fds=[writer],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=limit_seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"gave no answer within {limit_seconds:g} s"
    return describe_end(done.returncode, done.stdout.decode(errors="replace"))


def _parse(line: str) -> tuple[str, Answer]:
    values = json.loads(line)
    question, error, seconds = values.pop("question"), values.pop("error", None), values.pop("seconds")
    return question, Answer(values, error, seconds=seconds)
