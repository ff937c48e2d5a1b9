"""`torch-pool show [--json|--sh] [--profile P]`: every value that a launch sets, its source and reason."""

import argparse
import sys

from torch_pool.launch import LAUNCHED, inherited_environment
from torch_pool.preparation import make_plan, planned_environment
from torch_pool.profile_keys import INCOMPATIBLE
from torch_pool.record import TYPE_CHECKING
from torch_pool.report import format_json
from torch_pool.resolution import MEMORY

if TYPE_CHECKING:
    from torch_pool.launch import Baked
    from torch_pool.preparation import Plan


def main(argv: list[str], baked: "Baked") -> int:
    """Print the plan of a launch. Status 0 also where the launch would refuse: one comes to see why."""
    arguments = _arguments().parse_args(argv)
    environ = inherited_environment()
    if arguments.profile:
        environ["TORCH_POOL_PROFILE"] = arguments.profile
    plan = make_plan([], environ, baked, hold=False)
    if arguments.json:
        sys.stdout.write(f"{format_json(plan)}\n")
    elif arguments.sh:
        sys.stdout.write(format_shell(plan))
    else:
        sys.stdout.write(format_text(plan))
    return 0


def format_text(plan: "Plan") -> str:
    """For people: the profile, a table of the settings, what does not work, and what there is to know."""
    profile = plan.profile
    rows = [("VARIABLE", "VALUE", "SOURCE", "REASON"), *(tuple(setting) for setting in plan.settings)]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    table = [
        "  ".join([*(cell.ljust(w) for cell, w in zip(row, widths, strict=False)), row[3]]) for row in rows
    ]
    limits = [f"does not work: {slug} ({INCOMPATIBLE[slug]})" for slug in _limits(plan)]
    remedy = ["for these: TORCH_POOL_ALLOCATOR=expandable, or native"] if limits else []
    cap = _describe_cap(plan)
    evidence = [f"evidence: {profile.evidence}"] if profile.evidence else []
    findings = [f"{finding.severity}: {finding.message}" for finding in plan.findings]
    head = f"profile {profile.name}: {profile.summary}"
    return "\n".join([head, "", *table, "", *cap, *limits, *remedy, *evidence, *findings]).rstrip("\n") + "\n"


def format_shell(plan: "Plan") -> str:
    """For eval in a POSIX shell: it gives a process that the entrypoint did not start what a launch would."""
    environ = planned_environment(plan)
    names = [*(setting.name for setting in plan.settings), LAUNCHED]
    return "".join(f"export {name}={quote(environ[name])}\n" for name in dict.fromkeys(names))


def quote(value: str) -> str:
    """One word of a POSIX shell."""
    return "'" + value.replace("'", "'\\''") + "'"


def _describe_cap(plan: "Plan") -> list[str]:
    """What the memory cap is and is not; the in-process hook applies it."""
    memory = next((setting.value for setting in plan.settings if setting.name == MEMORY), None)
    if memory is None:
        return []
    if plan.asked.hook == "0":
        return [f"memory cap: {memory}, which nothing applies, because TORCH_POOL_HOOK=0 turns the hook off"]
    counts = (
        "reserved bytes" if plan.backend == "native" else "only the bytes that tensors ask for, under async"
    )
    return [f"memory cap: {memory} for each process, set when it starts CUDA; it counts {counts}"]


def _limits(plan: "Plan") -> tuple[str, ...]:
    """The profile's list is about the async allocator; with another one it does not hold."""
    return plan.profile.incompatible if plan.backend == "cudaMallocAsync" else ()


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("torch-pool show", description=__doc__, allow_abbrev=False)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON object")
    form.add_argument("--sh", action="store_true", help='export lines, for: eval "$(torch-pool show --sh)"')
    parser.add_argument("--profile", metavar="P", help="a profile of the image, or the path of a YAML file")
    return parser
