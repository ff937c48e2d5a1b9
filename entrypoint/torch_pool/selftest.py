"""`torch-pool selftest`: prove in a fresh process of the image's torch what a launch sets."""

import argparse
import re

from torch_pool import capability
from torch_pool.conf import CONF_BY_ALLOCATOR
from torch_pool.interrogation import Answer, interrogate
from torch_pool.launch import CONF, inherited_environment
from torch_pool.program import prove_program, run
from torch_pool.proof import STATUS, Proof, verdict
from torch_pool.proof_settings import SETTINGS, prove_allocator, prove_environment, prove_settings
from torch_pool.proof_torch import (
    CAP,
    POINTER,
    RELEASE,
    SEGMENTS,
    STATISTICS,
    prove_cap,
    prove_devices,
    prove_parse,
    prove_placement,
    prove_release,
    prove_start,
    prove_torch,
    unprovable,
)
from torch_pool.record import TYPE_CHECKING
from torch_pool.refusal import USAGE, Refusal
from torch_pool.selftest_report import Report, write_out, write_report
from torch_pool.subject import Subject, make_subject

if TYPE_CHECKING:
    from torch_pool.launch import Baked

WITHOUT_GPU = ("load", "parse")
WITH_GPU = (*WITHOUT_GPU, "devices", "placement", "release")


def main(argv: list[str], baked: "Baked") -> int:
    """Print the report on stdout. Status 0 proved, 1 disproved, 69 not provable here, 64 wrong usage.

    Raises Refusal where the JUnit file cannot be written.
    """
    options, command = split_command(argv)
    arguments = _arguments().parse_args(options)
    if arguments.capabilities:
        return show_capabilities(arguments, baked)
    report = examine(arguments, command, baked)
    write_report(report, as_json=arguments.json, junit=arguments.junit)
    return STATUS[report.verdict]


def show_capabilities(arguments: argparse.Namespace, baked: "Baked") -> int:
    """What works under this allocator. Raises Refusal for settings that a launch refuses whole."""
    subject = make_subject(inherited_environment(), baked, arguments.allocator, quick=False)
    measured = capability.measure(subject)
    write = capability.format_json if arguments.json else capability.format_text
    write_out(write(subject, measured))
    return capability.status(measured)


def split_command(argv: list[str]) -> tuple[list[str], list[str]]:
    """Our options, and the user's program after the first --."""
    if "--" not in argv:
        return argv, []
    end = argv.index("--")
    if not argv[end + 1 :]:
        raise Refusal(
            "no command was given after --; name one, such as: torch-pool selftest -- python app.py", USAGE
        )
    return argv[:end], argv[end + 1 :]


def examine(arguments: argparse.Namespace, command: list[str], baked: "Baked") -> Report:
    """Everything that the self-test finds. Settings that a launch refuses whole are a fault like others."""
    environ = inherited_environment()
    try:
        subject = make_subject(environ, baked, arguments.allocator, quick=arguments.quick)
    except Refusal as refusal:
        fault = Proof("settings", SETTINGS, "disproved", "a configuration that a launch takes", str(refusal))
        return Report("disproved", None, (fault,), {})
    proofs = [*prove_settings(subject), *prove_allocator(subject), prove_environment(subject, environ)]
    if command:
        proofs += prove_program(subject, run(command, subject.environ))
        return Report(verdict(proofs), subject, tuple(proofs), {})
    answers = ask(subject, quick=arguments.quick)
    proofs += prove(subject, answers, quick=arguments.quick)
    seconds = {question: round(answer.seconds, 4) for question, answer in answers.items()}
    return Report(verdict(proofs), subject, tuple(proofs), seconds)


def ask(subject: Subject, *, quick: bool) -> dict[str, Answer]:
    """Torch's answers. Without a driver async parses nothing: its other options are then parsed alone."""
    questions = WITHOUT_GPU if quick else WITH_GPU
    if subject.memory and not quick:
        questions = (*questions, "cap")
    answers = interrogate(questions, subject.environ)
    rest = without_backend(subject.conf)
    if rest and "unseen" in answers["parse"].values:
        answers["rest"] = interrogate(("parse",), {**subject.environ, CONF: rest})["parse"]
    return answers


def without_backend(conf: str) -> str:
    """The conf without its choice of a backend."""
    return re.sub(r"(^|,)\s*backend\s*:[^,]*", "", conf).strip(", ")


def prove(subject: Subject, answers: "dict[str, Answer]", *, quick: bool) -> "list[Proof]":
    """The proofs that rest on torch's answers. What needs a GPU is not provable without one."""
    proofs = prove_torch(subject, answers["load"])
    if answers["load"].error:
        return proofs
    proofs.append(prove_start(subject, answers["load"]))
    proofs.append(prove_parse(subject, answers["parse"], answers.get("rest")))
    if quick:
        return proofs
    proofs += prove_devices(subject, answers["devices"])
    if not answers["devices"].values.get("devices"):
        return [*proofs, *(unprovable(name, proves) for name, proves in _names(subject).items())]
    proofs += [*prove_placement(subject, answers["placement"]), prove_release(answers["release"])]
    return [*proofs, prove_cap(subject, answers["cap"])] if subject.memory else proofs


def _names(subject: Subject) -> dict[str, str]:
    """The checks that need a device."""
    names = {
        "pointer": POINTER,
        "statistics": STATISTICS,
        "segments": SEGMENTS,
        "release": RELEASE,
        "cap": CAP,
    }
    without = {"segments"} if subject.allocator == "async" else set()
    return {name: names[name] for name in names if name not in without and (name != "cap" or subject.memory)}


def _arguments() -> argparse.ArgumentParser:
    usage = "torch-pool selftest [OPTION...] [-- COMMAND [ARGUMENT...]]"
    parser = argparse.ArgumentParser(
        "torch-pool selftest",
        usage,
        __doc__,
        "With a COMMAND: what the user's own program really used.",
        allow_abbrev=False,
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--junit", metavar="FILE", help="also write JUnit XML")
    parser.add_argument("--quick", action="store_true", help="ask torch only what needs no GPU")
    parser.add_argument("--capabilities", action="store_true", help="measure what works under this allocator")
    parser.add_argument(
        "--allocator", choices=tuple(CONF_BY_ALLOCATOR), help="insist on this one, whatever the settings say"
    )
    return parser
