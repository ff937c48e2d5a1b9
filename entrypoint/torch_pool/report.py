"""The report of a launch: one line or one JSON object on stderr; a refusal in the termination log as well."""

import os

from torch_pool.launch import CONF, one_line, say
from torch_pool.record import TYPE_CHECKING

if TYPE_CHECKING:
    from torch_pool.preparation import Plan
    from torch_pool.refusal import Refusal

FORMAT = 1
"""1: profile, settings (name, value, source, reason), findings (severity, code, key, message)."""
TERMINATION_LOG = "/dev/termination-log"


def report(plan: "Plan", *, is_news: bool) -> None:
    """Say what was set, and each warning. A launch in a launch that changes nothing has no news."""
    if plan.asked.log == "json":
        write_line(format_json(plan))
        return
    if is_news and plan.asked.log == "text":
        say(format_line(plan))
    for finding in plan.findings:
        if finding.severity == "warn" and is_news:
            say(finding.message, "warning")


def format_line(plan: "Plan") -> str:
    """The one line: the profile, and every variable that is not of the user's own making."""
    shown = " ".join(f"{s.name}={s.value}" for s in plan.settings)
    source = next((s.source for s in plan.settings if s.name == CONF), "")
    return f"profile {plan.profile.name}: {shown}" + (f" ({source})" if source != "baked profile" else "")


def format_json(plan: "Plan") -> str:
    """The same for machines, with notes and reasons."""
    import json  # noqa: PLC0415 - text is the default

    return json.dumps(
        {
            "torch_pool": FORMAT,
            "profile": plan.profile.name,
            "settings": [setting._asdict() for setting in plan.settings],
            "findings": [finding._asdict() for finding in plan.findings],
        }
    )


def report_refusal(refusal: "Refusal", log: str | None, termination_log: str = TERMINATION_LOG) -> None:
    """One line on stderr, and in the termination log, so that `kubectl describe pod` shows it."""
    if log == "json":
        import json  # noqa: PLC0415 - text is the default

        write_line(json.dumps({"torch_pool": FORMAT, "refused": str(refusal), "status": refusal.status}))
    else:
        say(str(refusal), "refused")
    try:
        descriptor = os.open(termination_log, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(f"torch-pool: {one_line(str(refusal))}\n")
    except OSError:
        # Outside Kubernetes there is none, and a full one must not hide the refusal.
        return


def write_line(text: str) -> None:
    """One unadorned line on stderr."""
    try:
        os.write(2, f"{text}\n".encode(errors="surrogateescape"))
    except OSError:
        return
