"""Layers: an image's size, as the sum of its uncompressed layers, and what of it is not its base's."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import docker


@dataclass(frozen=True)
class Layer:
    """`size_bytes` unpacked; `created_by` is the instruction."""

    diff_id: str
    size_bytes: int
    created_by: str


def read_layers(client: docker.DockerClient, image: str) -> tuple[Layer, ...]:
    """The layers of an image, the oldest first.

    The sizes are of the history, which is of unpacked layers in either image store of an engine; the size that
    `docker images` shows is not: with the containerd store it counts compressed blobs too.
    """
    diff_ids = client.api.inspect_image(image)["RootFS"]["Layers"]
    return match_layers(diff_ids, client.api.history(image))


def match_layers(diff_ids: Sequence[str], history: Sequence[dict[str, Any]]) -> tuple[Layer, ...]:
    """Pairs diff ids with history entries (the newest first); entries without a layer have size 0.

    An entry of size 0 may still have a layer (a folder that was there already), so where there are more layers
    than entries with a size, entries that write files fill up.
    """
    entries = [entry for entry in reversed(history) if _has_layer(entry)]
    if len(entries) != len(diff_ids):
        entries = [entry for entry in reversed(history) if entry["Size"]][: len(diff_ids)]
    pairs = zip(diff_ids, entries, strict=False)
    return tuple(Layer(diff_id, entry["Size"], _instruction(entry["CreatedBy"])) for diff_id, entry in pairs)


def _has_layer(entry: dict[str, Any]) -> bool:
    text = _instruction(entry["CreatedBy"])
    return bool(entry["Size"]) or text.startswith(("RUN", "COPY", "ADD", "WORKDIR"))


def _instruction(created_by: str) -> str:
    text = " ".join(created_by.replace("/bin/sh -c #(nop)", "").replace("# buildkit", "").split())
    return f"RUN {text.removeprefix('/bin/sh -c ')}" if text.startswith("/bin/sh -c ") else text


def own_layers(layers: Sequence[Layer], base: Sequence[Layer]) -> tuple[Layer, ...]:
    """What an image adds to its base."""
    shared = {layer.diff_id for layer in base}
    return tuple(layer for layer in layers if layer.diff_id not in shared)


def total_bytes(layers: Sequence[Layer]) -> int:
    return sum(layer.size_bytes for layer in layers)
