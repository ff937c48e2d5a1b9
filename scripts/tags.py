"""Tags: what an image is called. A rolling and a content tag move, an immutable one never does."""

from scripts.facts import Facts
from scripts.images import Image
from scripts.reference import choose_registry
from scripts.settings import Settings

PROFILE_LABEL = "io.torch-pool.profile"


def repository(settings: Settings) -> str:
    """Such as torch-pool, or registry.example.com/team/torch-pool.

    Raises:
        Refusal: REGISTRY is no registry.
    """
    registry = choose_registry(settings.registry)
    return f"{registry}/torch-pool" if registry else "torch-pool"


def rolling_tag(image: Image, settings: Settings) -> str:
    """Such as torch-pool:infer."""
    return f"{repository(settings)}:{image.name}"


def content_tag(rolling: str, facts: Facts) -> str:
    """Such as torch-pool:infer-torch2.6.0-cu124-py311-debian12: every part is read from the image."""
    return f"{rolling}-{facts.content}"
