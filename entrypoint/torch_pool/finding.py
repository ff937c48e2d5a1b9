"""A finding: one thing that a check saw and the user should know. Who finds it does not print or judge it."""

from torch_pool.record import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Literal

    Severity = Literal["refuse", "warn", "note"]


class Finding(NamedTuple):
    """`code` is a stable slug for tests and documentation; `key` is the variable or setting concerned."""

    severity: "Severity"
    code: str
    key: str | None
    message: str
