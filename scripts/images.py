"""The images: one folder each under images/, described by its image.yaml."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch_pool.refusal import Refusal

from scripts.settings import shown
from scripts.table import read_table, to_record

ROOT = Path(__file__).resolve().parent.parent
# A part of tags, names of files and labels; a content tag adds some 60 characters, and 128 is the limit.
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,59}")
NAME_WORDS = "up to 60 of a-z, 0-9, dot, dash and underscore, the first a letter or digit"


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
        Refusal: an image.yaml cannot be read, lacks a key, has one that is not known, or a wrong value.
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
    image = to_record(Image, {**values, **folder}, str(path))
    _check(image, path)
    return image


def _check(image: Image, path: Path) -> None:
    if not NAME.fullmatch(image.name):
        raise Refusal(f"{path}: the folder's name becomes a tag, so it must be {NAME_WORDS}")
    if not NAME.fullmatch(image.profile):
        raise Refusal(f"{path}: profile is {shown(image.profile)}, but must be a name of entrypoint/profiles")
    if image.budget_mb < 1:
        raise Refusal(f"{path}: budget_mb is {image.budget_mb}, but must be 1 or more")
    for name in image.imports:
        if not all(part.isidentifier() for part in name.split(".")):
            raise Refusal(f"{path}: imports has {shown(name)}, which Python cannot import")
    for key, text in (("title", image.title), ("description", image.description)):
        if not text.strip():
            raise Refusal(f"{path}: {key} is empty; it becomes a label of the image")
