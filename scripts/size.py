"""`make size PROFILE=NAME`: what an image takes to pull, by compressing its layers once.

Building never compresses, so this number is absent from a build's report; it costs about a minute.
"""

import sys

from torch_pool.refusal import Refusal

from scripts.base_image import ensure_base
from scripts.build import build_candidate
from scripts.builder import Output, open_builder, require_image
from scripts.images import load_images
from scripts.layers import stored_bytes
from scripts.settings import Settings, choose_profile
from scripts.tags import rolling_tag

NAME = "torch-pool-size"


def main(settings: Settings) -> int:
    """Prints the unpacked and the compressed size of a built image, in decimal MB.

    Raises:
        Refusal: there is no such image, or the engine's image store cannot hold compressed layers.
    """
    images = load_images()
    image = images[choose_profile(settings.profile, images)]
    tag = f"{NAME}:{image.name}"
    if settings.dry_run.value == "1":
        steps = (
            f"compress the layers of {rolling_tag(image, settings)} with zstd as {tag}, and remove that tag"
        )
        print(f"would {steps}", file=sys.stderr)
        return 0
    builder = open_builder(settings)
    require_image(builder.client, rolling_tag(image, settings))
    if not builder.engine.image_store:
        raise Refusal(
            "this engine's classic image store keeps no compressed layers, so their size cannot be read; "
            'switch on the containerd store ({"features": {"containerd-snapshotter": true}} in daemon.json)'
        )
    base = ensure_base(builder)
    print("compressing every layer with zstd; this takes about a minute", file=sys.stderr)
    build_candidate(builder, image, base, Output(tag, "zstd"))
    compressed = stored_bytes(builder.client, tag)
    builder.client.images.remove(tag)
    added = stored_bytes(builder.client, rolling_tag(image, settings)) - base.stored_bytes
    print(
        f"{rolling_tag(image, settings)}: {(base.unpacked_bytes + added) / 1e6:.0f} MB unpacked, "
        f"{compressed / 1e6:.0f} MB compressed (zstd)"
    )
    return 0
