"""The report of a build: what the gate found, and where the bytes are."""

from collections.abc import Sequence
from typing import TextIO

from scripts.gate import Evidence, Result
from scripts.images import Image
from scripts.layers import Layer, own_layers, total_bytes

_WIDTH = 80


def print_report(image: Image, evidence: Evidence, results: Sequence[Result], out: TextIO) -> None:
    """Prints the checks, then the layers with the image's own apart, in 80 columns."""
    print(f"\ngate of {image.name}", file=out)
    for result in results:
        mark, text = ("ok", result.found) if result.passed else ("FAILED", _failure(result))
        print(f"  {mark:<7}{result.check:<18}{_cut(text, _WIDTH - 27)}", file=out)
    print(f"\n{'MB':>9}  layer of {image.name}, on disk (+: not of its base)", file=out)
    own = own_layers(evidence.layers, evidence.base.layers)
    for layer in evidence.layers:
        print(format_layer(layer, own=layer in own), file=out)
    unpacked = evidence.base.unpacked_bytes + evidence.added_bytes
    print(f"{total_bytes(evidence.layers) / 1e6:>9.2f}  on disk", file=out)
    print(f"{unpacked / 1e6:>9.2f}  unpacked, {evidence.added_bytes / 1e6:.2f} of it added", file=out)
    print(f"{'-':>9}  compressed: a build compresses nothing; make size PROFILE={image.name} does", file=out)


def format_layer(layer: Layer, *, own: bool) -> str:
    """One line: decimal MB, a mark on the image's own layers, the instruction."""
    mark = "+" if own else " "
    return f"{layer.size_bytes / 1e6:>9.2f} {mark}{_cut(layer.created_by, _WIDTH - 12)}"


def _failure(result: Result) -> str:
    return f"expected {result.expected}, found {result.found}"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
