"""`make clean`: removes the images that builds gave names to in this engine, and build/; nothing else."""

import os
import shutil
import sys
from collections.abc import Iterator

import docker
from torch_pool.refusal import Refusal

from scripts.base_image import INPUTS_LABEL
from scripts.base_image import REPOSITORY as BASES
from scripts.bench_build import REPOSITORY as BENCHES
from scripts.build import CANDIDATE
from scripts.containers import LABEL
from scripts.context import BUILD
from scripts.engine import docker_client, read_engine
from scripts.settings import Settings
from scripts.size import NAME as SIZES
from scripts.tags import PROFILE_LABEL, repository


def main(settings: Settings) -> int:
    """Prints and removes each; a dry run only prints. An engine that does not answer is left alone.

    Raises:
        Refusal: a container still uses one of the images.
    """
    dry = settings.dry_run.value == "1"
    engine = read_engine(os.environ)
    if engine.error:
        print(f"no engine answers ({engine.error}), so its images stay", file=sys.stderr)
    else:
        remove_images(docker_client(), settings, dry=dry)
        print("the build cache is the engine's, so it stays; docker builder prune frees it", file=sys.stderr)
    print(f"folder {BUILD}", file=sys.stderr)
    if not dry:
        shutil.rmtree(BUILD, ignore_errors=True)
    return 0


def remove_images(client: docker.DockerClient, settings: Settings, *, dry: bool) -> None:
    """Removes our tags, and containers that a killed build or test left; never another name of an image."""
    for container in client.containers.list(all=True, filters={"label": LABEL, "status": "exited"}):
        print(f"container {container.short_id}", file=sys.stderr)
        if not dry:
            container.remove()
    for tag in sorted(our_tags(client, settings)):
        print(f"image {tag}", file=sys.stderr)
        if not dry:
            _remove(client, tag)


def our_tags(client: docker.DockerClient, settings: Settings) -> Iterator[str]:
    """The tags under our names, on images that carry our label."""
    names = {repository(settings): PROFILE_LABEL, BASES: INPUTS_LABEL}
    names |= dict.fromkeys((CANDIDATE, SIZES, BENCHES), PROFILE_LABEL)
    for name, label in names.items():
        for image in client.images.list(name=name, filters={"label": label}):
            yield from (tag for tag in image.tags if tag.startswith(f"{name}:"))


def _remove(client: docker.DockerClient, tag: str) -> None:
    try:
        client.images.remove(tag)
    except docker.errors.APIError as error:
        raise Refusal(f"{tag} cannot be removed: {error.explanation}") from error
