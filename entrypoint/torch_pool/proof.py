"""A proof: what one check of the self-test expected and what it found, and what all of them together say."""

from torch_pool.record import TYPE_CHECKING, NamedTuple
from torch_pool.refusal import UNAVAILABLE

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Literal

    Status = Literal["proved", "disproved", "not provable", "note"]

STATUS = {"proved": 0, "disproved": 1, "not provable": UNAVAILABLE}
"""The exit status of each verdict."""


class Proof(NamedTuple):
    """One check. `proves` is a sentence; a note counts for nothing in the verdict."""

    name: str
    proves: str
    status: "Status"
    expected: str
    found: str
    remedy: str = ""


def compare(name: str, proves: str, expected: str, found: str, remedy: str) -> Proof:
    """Proved where both are equal; only a difference needs a remedy."""
    if expected == found:
        return Proof(name, proves, "proved", expected, found)
    return Proof(name, proves, "disproved", expected, found, remedy)


def verdict(proofs: "Iterable[Proof]") -> "Status":
    """One fault disproves; else one hole leaves it open. A skipped check is never a passed one."""
    found = {proof.status for proof in proofs}
    if "disproved" in found:
        return "disproved"
    return "proved" if found <= {"proved", "note"} and "proved" in found else "not provable"
