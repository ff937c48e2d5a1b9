"""`torch-pool check CONF`: would torch take this conf, what would be ignored, what is harmful."""

import argparse
import json
import sys

from torch_pool.conf import Verdict, judge
from torch_pool.conf_keys import default_settings
from torch_pool.conf_rules import show
from torch_pool.record import TYPE_CHECKING
from torch_pool.refusal import CONFIG
from torch_pool.torch_version import DEFAULT_TORCH, image_torch_version, minor_of

if TYPE_CHECKING:
    from torch_pool.conf_keys import Value

JSON_FORMAT = 1
"""1: the fields of Verdict and Finding, and `refused`."""


def main(argv: list[str]) -> int:
    """Print the verdict on stdout. Status 0, 78 if the conf is refused."""
    arguments = _arguments().parse_args(argv)
    verdict = judge(arguments.conf, arguments.torch or image_torch_version() or DEFAULT_TORCH)
    sys.stdout.write(format_json(verdict) if arguments.json else format_text(verdict))
    return CONFIG if is_refused(verdict) else 0


def is_refused(verdict: Verdict) -> bool:
    """Would a launch refuse this conf?"""
    return any(finding.severity == "refuse" for finding in verdict.findings)


def format_text(verdict: Verdict) -> str:
    """For people: the verdict, each finding, what torch would set, and the conf to export."""
    answer = "accepts" if verdict.accepted else "refuses"
    lines = [f"torch {verdict.torch} {answer} {show(verdict.conf)} (allocator {verdict.allocator})"]
    lines += [f"{f.severity}: {f.message} [{f.code}]" for f in verdict.findings]
    lines += [f"set: {name} = {_format_setting(value)}" for name, value in _changed_settings(verdict)]
    if verdict.normalised is not None:
        lines.append(f"export: PYTORCH_CUDA_ALLOC_CONF={verdict.normalised}")
    return "\n".join(lines) + "\n"


def format_json(verdict: Verdict) -> str:
    """For programs: one object on one line."""
    fields = verdict._asdict() | {"findings": [finding._asdict() for finding in verdict.findings]}
    return json.dumps({"format": JSON_FORMAT, "refused": is_refused(verdict)} | fields) + "\n"


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("torch-pool check", description=__doc__, allow_abbrev=False)
    parser.add_argument("conf", metavar="CONF", help="a value of PYTORCH_CUDA_ALLOC_CONF")
    parser.add_argument("--torch", metavar="X.Y", help="judge for this torch (default: the installed one)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def _changed_settings(verdict: Verdict) -> "list[tuple[str, Value]]":
    defaults = default_settings(minor_of(verdict.torch) or 0)
    return [(name, value) for name, value in (verdict.settings or {}).items() if value != defaults.get(name)]


def _format_setting(value: "Value") -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
