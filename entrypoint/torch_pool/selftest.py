"""`torch-pool selftest`: prove in a fresh process of the image's torch what a launch sets."""

import argparse
import os
import re

from torch_pool import capability
from torch_pool.conf import CONF_BY_ALLOCATOR
from torch_pool.interrogation import Answer, interrogate
from torch_pool.launch import CONF, inherited_environment, say
from torch_pool.program import prove_program, run
from torch_pool.proof import STATUS, Proof, verdict
from torch_pool.proof_settings import SETTINGS, prove_allocator, prove_environment, prove_settings
from torch_pool.proof_torch import (
    BACKEND,
    CAP,
    DEVICES,
    PARSE,
    POINTER,
    POOLS,
    RELEASE,
    SEGMENTS,
    START,
    STATISTICS,
    TORCH,
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
from torch_pool.selftest_report import Report, write_junit, write_out, write_report
from torch_pool.subject import Subject, make_subject

if TYPE_CHECKING:
    from torch_pool.launch import Baked

SOFTWARE = 70
"""The self-test itself failed (sysexits.h EX_SOFTWARE)."""
INTERRUPTED = 130
"""What a shell says of a program that SIGINT ended."""
WITHOUT_GPU = ("load", "parse")
WITH_GPU = (*WITHOUT_GPU, "devices", "placement", "release")


def main(argv: list[str], baked: "Baked") -> int:
    """Print the report on stdout. Status 0 proved, 1 disproved, 69 not provable here, 64 wrong usage.

    70 where the self-test itself fails: 1 is a verdict, and would be Python's own status as well.
    """
    _open_standard_files()
    try:
        return selftest(argv, baked)
    except Refusal as refusal:
        say(str(refusal))
        return refusal.status
    except KeyboardInterrupt:
        say("the self-test was interrupted, which proves nothing")
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - whatever fails here must not look like a verdict
        say(f"the self-test itself failed, which proves nothing: {type(error).__name__}: {error}")
        return SOFTWARE


def selftest(argv: list[str], baked: "Baked") -> int:
    """The whole self-test. Raises Refusal for wrong usage, and where the JUnit file cannot be written."""
    options, command = split_command(argv)
    arguments = _arguments().parse_args(options)
    refuse_pairs(arguments, command)
    if arguments.capabilities:
        return show_capabilities(arguments, baked)
    if arguments.junit:
        write_junit(arguments.junit, "")
    report = examine(arguments, command, baked)
    write_report(report, as_json=arguments.json, junit=arguments.junit)
    return STATUS[report.verdict]


def _open_standard_files() -> None:
    """A closed one would be the number of the next pipe, and a program's output would end up in it."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) < 3:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)


def refuse_pairs(arguments: argparse.Namespace, command: list[str]) -> None:
    """Raise Refusal for options of which one would be passed over in silence."""
    given = {"--quick": arguments.quick, "--junit": arguments.junit, "a command": command}
    if arguments.capabilities:
        clashing = [name for name, value in given.items() if value]
    else:
        clashing = ["a command"] if arguments.quick and command else []
    if clashing:
        one = "--capabilities" if arguments.capabilities else "--quick"
        raise Refusal(f"{one} cannot go with {', '.join(clashing)}; leave one of them out", USAGE)


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
    """The proofs that rest on torch's answers, by the same names whatever is here to prove them."""
    load = answers["load"]
    proofs = prove_torch(subject, load)
    if not load.error:
        proofs += [prove_start(subject, load), prove_parse(subject, answers["parse"], answers.get("rest"))]
        if not quick:
            proofs += _prove_devices(subject, answers)
        if subject.memory and (not quick or not load.values["hook"]):
            proofs.append(prove_cap(subject, load, answers.get("cap")))
    why = "torch does not load" if load.error else "not asked, after another check failed"
    proved = {proof.name for proof in proofs}
    missing = {name: proves for name, proves in _names(subject, quick=quick).items() if name not in proved}
    answer = "an answer of torch"
    unasked = [Proof(name, proves, "not provable", answer, why) for name, proves in missing.items()]
    return [*proofs, *unasked]


def _prove_devices(subject: Subject, answers: "dict[str, Answer]") -> "list[Proof]":
    devices = answers["devices"]
    proofs = prove_devices(subject, devices)
    if not devices.error and not devices.values["devices"]:
        needs_device = ("pointer", "statistics", "segments", "release")
        names = _names(subject, quick=False)
        return [*proofs, *(unprovable(name, names[name]) for name in needs_device if name in names)]
    return [*proofs, *prove_placement(subject, answers["placement"]), prove_release(answers["release"])]


def _names(subject: Subject, *, quick: bool) -> dict[str, str]:
    """Every check, with what it proves."""
    names = {"torch": TORCH, "start": START, "backend": BACKEND, "parse": PARSE}
    if quick:
        return names
    names |= {"devices": DEVICES, "pools": POOLS, "pointer": POINTER, "statistics": STATISTICS}
    names |= {} if subject.allocator == "async" else {"segments": SEGMENTS}
    names["release"] = RELEASE
    return {**names, "cap": CAP} if subject.memory else names


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
