"""A suggestion: the known word that a mistaken one most likely stands for."""

from torch_pool.record import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def suggest(word: str, known: "Iterable[str]") -> str:
    """The end of a message about an unknown word: the nearest known one, else all of them."""
    import difflib  # noqa: PLC0415 - only a mistake pays for the import

    names = sorted(known)
    by_lower = {name.lower(): name for name in names}
    near = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    if near:
        return f"did you mean {by_lower[near[0]]}?"
    return f"known: {', '.join(names) or 'none'}"
