"""The report of a self-test: text for people, JSON for programs, JUnit XML for pipelines."""

import json
import sys

from torch_pool.proof import Proof
from torch_pool.record import TYPE_CHECKING, NamedTuple
from torch_pool.refusal import USAGE, Refusal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch_pool.proof import Status
    from torch_pool.subject import Subject

JSON_FORMAT = 1
"""1: verdict, profile, allocator, conf, source, torch, memory, proofs (of Proof), seconds by question."""
_MARKS = {"proved": "✓", "disproved": "✗", "not provable": "?", "note": "i"}


class Report(NamedTuple):
    """`subject` is None where the settings were refused whole; `seconds` are those of each question."""

    verdict: "Status"
    subject: "Subject | None"
    proofs: tuple[Proof, ...]
    seconds: "Mapping[str, float]"


def write_report(report: Report, *, as_json: bool, junit: str | None) -> None:
    """The report on stdout, and in a file of JUnit XML. Raises Refusal where that cannot be written."""
    if junit:
        write_junit(junit, format_junit(report))
    write_out(format_json(report) if as_json else format_text(report))


def write_junit(path: str, text: str) -> None:
    """The text as the whole file; an empty one before the run finds out whether it can be written.

    Raises Refusal where it cannot be.
    """
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        what = f"--junit {path} cannot be written: {error.strerror}"
        raise Refusal(f"{what}; name another file", USAGE) from error


def write_out(text: str) -> None:
    """The text on stdout, which may be a pipe in a locale without check marks, or closed.

    Raises OSError where it cannot be written. Nothing stays in a buffer, for Python's end to fail on again.
    """
    encoding = sys.stdout.encoding if sys.stdout else "utf-8"
    with open(1, "wb", closefd=False) as stdout:
        stdout.write(text.encode(encoding, errors="replace"))


def format_text(report: Report) -> str:
    """For people: what is to be proved, a line for each check with what to do below it, and the verdict."""
    lines = [_head(report.subject), ""] if report.subject else []
    width = max(len(proof.name) for proof in report.proofs)
    for proof in report.proofs:
        lines.append(f"{_MARKS[proof.status]} {proof.name:<{width}}  {_tell(proof)}")
        if proof.remedy:
            lines.append(f"  {'':<{width}}  -> {proof.remedy}")
    return "\n".join([*lines, "", _verdict(report)]) + "\n"


def format_json(report: Report) -> str:
    """For programs: one object on one line."""
    subject = report.subject
    head = {} if subject is None else {name: getattr(subject, name) for name in _HEAD_FIELDS}
    proofs = [proof._asdict() for proof in report.proofs]
    whole = {"format": JSON_FORMAT, "verdict": report.verdict, **head, "proofs": proofs}
    return json.dumps({**whole, "seconds": dict(report.seconds)}) + "\n"


def format_junit(report: Report) -> str:
    """For pipelines: a test case for each check; what is not provable here is skipped, a fault fails."""
    from xml.sax.saxutils import quoteattr  # noqa: PLC0415 - only a pipeline needs it

    counts = {status: sum(proof.status == status for proof in report.proofs) for status in _MARKS}
    cases = []
    for proof in report.proofs:
        told = quoteattr(_printable(f"{_tell(proof)}{f'; {proof.remedy}' if proof.remedy else ''}"))
        result = {"disproved": f"<failure message={told}/>", "not provable": f"<skipped message={told}/>"}
        case = f'<testcase classname="torch-pool.selftest" name={quoteattr(proof.name)}>'
        cases.append(f"  {case}{result.get(proof.status, '')}</testcase>")
    head = (
        f'<testsuite name="torch-pool selftest" tests="{len(report.proofs)}" '
        f'failures="{counts["disproved"]}" errors="0" skipped="{counts["not provable"]}">'
    )
    return "\n".join(['<?xml version="1.0" encoding="UTF-8"?>', head, *cases, "</testsuite>", ""])


_HEAD_FIELDS = ("profile", "allocator", "conf", "source", "torch", "memory")


def _head(subject: "Subject") -> str:
    conf = f"{subject.conf or 'no conf'}, from {subject.source}"
    return f"profile {subject.profile}, allocator {subject.allocator} ({conf}), torch {subject.torch}"


def _tell(proof: Proof) -> str:
    if proof.status == "proved":
        return f"{proof.proves}: {proof.found}"
    if proof.status == "not provable":
        return f"{proof.proves}: not provable here: {proof.found}"
    return f"{proof.proves}: expected {proof.expected}, found {proof.found}"


def _verdict(report: Report) -> str:
    names = {
        status: [proof.name for proof in report.proofs if proof.status == status]
        for status in ("proved", "disproved", "not provable")
    }
    counted = ", ".join(f"{len(found)} {status}" for status, found in names.items() if found)
    if report.verdict == "proved":
        return f"proved ({counted})"
    return f"{report.verdict} here ({counted}): {', '.join(names[report.verdict])}"


def _printable(text: str) -> str:
    """XML has no control characters, whatever a program said last."""
    return "".join(character if character.isprintable() else " " for character in text)
