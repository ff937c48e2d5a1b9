"""The images: one folder each under images/, described by its image.yaml."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch_pool.refusal import Refusal

from scripts.table import read_table, to_record

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Image:
    """`budget_mb`: what it may add to its base, unpacked, in decimal MB; `imports`: packages it promises."""

    name: str
    title: str
    description: str
    profile: str
    budget_mb: int
    imports: tuple[str, ...] = ()
    requirements: str | None = None


def load_images(root: Path = ROOT) -> Mapping[str, Image]:
    """Every image by name, in the order of the names.

    Raises:
        Refusal: an image.yaml cannot be read, lacks a key, or has one that is not known.
    """
    paths = sorted((root / "images").glob("*/image.yaml"))
    if not paths:
        raise Refusal(f"{root / 'images'} holds no image.yaml; is this a whole checkout?")
    return {path.parent.name: read_image(path) for path in paths}


def read_image(path: Path) -> Image:
    """One image; its locked packages are in requirements.txt beside its image.yaml, where it has any.

    Raises:
        Refusal: see load_images.
    """
    values = read_table(path)
    lock = path.with_name("requirements.txt")
    folder = {"name": path.parent.name, "requirements": lock.name if lock.exists() else None}
    for key in folder.keys() & values.keys():
        raise Refusal(f"{path}: {key} is what the folder says; remove the line")
    return to_record(Image, {**values, **folder}, str(path))
