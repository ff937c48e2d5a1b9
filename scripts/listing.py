"""`make list`: the images, what each is for, and whether it is built in this engine."""

import os
from collections.abc import Iterable

from scripts.builder import image_labels
from scripts.engine import docker_client, read_engine
from scripts.images import Image, load_images
from scripts.settings import Settings
from scripts.tags import rolling_tag

_VERSION = "org.opencontainers.image.version"


def main(settings: Settings) -> int:
    """Prints one line an image; starts no engine."""
    images = load_images()
    versions = read_versions(settings, images.values())
    for image in images.values():
        print(f"{image.name:<14} {versions.get(image.name, 'not built'):<24} {image.description}")
    return 0


def read_versions(settings: Settings, images: Iterable[Image]) -> dict[str, str]:
    """The version label of each image that is built; of none where no engine answers."""
    if read_engine(os.environ).error:
        return {image.name: "no engine" for image in images}
    client = docker_client()
    labels = {image.name: image_labels(client, rolling_tag(image, settings)) for image in images}
    return {name: found.get(_VERSION, "not ours") for name, found in labels.items() if found is not None}
