"""`torch-pool doctor [--json]`: driver, GPUs, shared memory, user, caches, and what to do about each."""

import argparse
import json
import os
import sys

from torch_pool import doctor_container, doctor_gpu
from torch_pool.machine import Check, Machine, examine
from torch_pool.nvml import Inventory
from torch_pool.record import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

JSON_FORMAT = 1
"""1: torch, driver, libcuda, platform, gpus (the fields of nvml.Gpu), checks (the fields of Check)."""

CHECKS: "tuple[Callable[[Machine], Check], ...]" = (
    doctor_container.check_runtime,
    doctor_gpu.check_access,
    doctor_gpu.check_driver,
    doctor_gpu.check_libcuda,
    doctor_gpu.check_gpus,
    doctor_gpu.check_visible,
    doctor_gpu.check_cuda,
    doctor_gpu.check_pools,
    doctor_gpu.check_vmm,
    doctor_container.check_shm,
    doctor_container.check_user,
    doctor_container.check_caches,
    doctor_container.check_libraries,
    doctor_container.check_capabilities,
)
"""From the host to the process: the first one that is not ok often explains the next ones."""


def main(argv: list[str]) -> int:
    """Print the report on stdout. Status 1 if a check found an error."""
    arguments = _arguments().parse_args(argv)
    machine = examine(os.environ)
    checks = diagnose(machine)
    sys.stdout.write(format_json(machine, checks) if arguments.json else format_text(checks))
    return 1 if any(check.status == "error" for check in checks) else 0


def diagnose(machine: Machine) -> tuple[Check, ...]:
    """Run every check; one that fails by a bug of ours is an error of its own and hides no other."""
    return tuple(_run(check, machine) for check in CHECKS)


def format_text(checks: "Sequence[Check]") -> str:
    """For people: a line for each check, with what to do below it."""
    lines = []
    for check in checks:
        lines.append(f"{check.status:<14}  {check.name:<12}  {check.seen}")
        if check.advice:
            lines.append(f"{'':<14}  {'':<12}  -> {check.advice}")
    counts = {status: sum(check.status == status for check in checks) for status in ("error", "warning")}
    lines += [
        "",
        ", ".join(f"{count} {status}{'' if count == 1 else 's'}" for status, count in counts.items()),
    ]
    return "\n".join(lines) + "\n"


def format_json(machine: Machine, checks: "Sequence[Check]") -> str:
    """For programs: one object on one line; what is unknown is null."""
    inventory = machine.inventory
    gpus = [_gpu(gpu._asdict()) for gpu in inventory.gpus] if isinstance(inventory, Inventory) else None
    report = {
        "format": JSON_FORMAT,
        "torch": machine.torch,
        "platform": machine.access.platform,
        "driver": machine.access.driver,
        "libcuda": machine.access.libcuda,
        "gpus": gpus,
        "checks": [check._asdict() for check in checks],
    }
    return json.dumps(report) + "\n"


def _gpu(fields: "dict[str, object]") -> "dict[str, object]":
    migs = fields["mig"]
    return fields | {"mig": [mig._asdict() for mig in migs] if isinstance(migs, tuple) else None}


def _run(check: "Callable[[Machine], Check]", machine: Machine) -> Check:
    try:
        return check(machine)
    except Exception as error:  # noqa: BLE001 - a report with a hole is worth more than none
        name = check.__name__.removeprefix("check_")
        return Check(
            name, "error", f"the check failed: {type(error).__name__}: {error}", "report this as a bug"
        )


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("torch-pool doctor", description=__doc__, allow_abbrev=False)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser
