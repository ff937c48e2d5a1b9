"""`make build-all`: every image, one after another, on one base."""

from scripts.build import build_images
from scripts.images import load_images
from scripts.settings import Settings


def main(settings: Settings) -> int:
    """Builds every image; stops at the first that fails, and what passed before it keeps its tags.

    Raises:
        Refusal: see build.main.
    """
    build_images(list(load_images().values()), settings)
    return 0
