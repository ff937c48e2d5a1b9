"""Layers: where an image's bytes are, and how many of them are not its base's."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import docker


@dataclass(frozen=True)
class Layer:
    """`size_bytes` as the engine unpacked it, in whole disk blocks; `created_by` is the instruction."""

    diff_id: str
    size_bytes: int
    created_by: str


def read_layers(client: docker.DockerClient, image: str) -> tuple[Layer, ...]:
    """The layers of an image, the oldest first, each with its size on the engine's disk."""
    found = client.images.get(image)
    return match_layers(found.attrs["RootFS"]["Layers"], found.history())


def match_layers(diff_ids: Sequence[str], history: Sequence[dict[str, Any]]) -> tuple[Layer, ...]:
    """Pairs diff ids with history entries, the newest first.

    The engine does not say which entries have a layer: those with a size do, and BuildKit makes one for every
    instruction that may write. Where the counts differ (another builder made the base) only sizes decide.
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


def stored_bytes(client: docker.DockerClient, image: str) -> int:
    """The bytes of an image's layers as the engine stores them.

    That is unpacked in the classic store. In containerd's it is the blobs: what we build is exported
    uncompressed, so there too it is the sum of the unpacked layers; of a pulled base it is compressed.
    """
    size: int = client.images.get(image).attrs["Size"]
    return size
