"""A finding: one thing that a check saw and the user should know. Whoever finds it does not print or judge it."""

from typing import Literal, NamedTuple

Severity = Literal["refuse", "warn", "note"]


class Finding(NamedTuple):
    """`code` is a stable slug for tests and documentation; `key` is the variable or setting concerned."""

    severity: Severity
    code: str
    key: str | None
    message: str
