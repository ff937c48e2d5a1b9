"""`make selftest PROFILE=NAME`: the gate's checks, on an image that is tagged already."""

import sys

from scripts import gate
from scripts.base_image import ensure_base
from scripts.builder import open_builder, require_image
from scripts.images import load_images
from scripts.render import load_image_profile
from scripts.report import print_report
from scripts.settings import Settings, choose_profile
from scripts.tags import rolling_tag


def main(settings: Settings) -> int:
    """Prints what the gate finds; nothing is built or tagged.

    Raises:
        Refusal: there is no such image, or a check fails.
    """
    images = load_images()
    image = images[choose_profile(settings.profile, images)]
    builder = open_builder(settings)
    tag = rolling_tag(image, settings)
    require_image(builder.client, tag)
    evidence = gate.collect(builder.client, tag, image, load_image_profile(image), ensure_base(builder))
    results = gate.judge(evidence)
    print_report(image, evidence, results, sys.stdout)
    gate.require_passed(tag, results)
    return 0
