"""`make clean`: removes what builds left in this engine and in build/, and nothing else."""

import shutil
import sys

from scripts.base_image import REPOSITORY as BASES
from scripts.build import CANDIDATE
from scripts.containers import LABEL
from scripts.context import BUILD
from scripts.engine import docker_client, ensure_engine
from scripts.settings import Settings
from scripts.tags import PROFILE_LABEL, repository


def main(settings: Settings) -> int:
    """Removes our containers, our tags, the unused build cache and build/; prints each.

    Raises:
        Refusal: no engine answers.
    """
    ensure_engine(settings)
    client = docker_client()
    for container in client.containers.list(all=True, filters={"label": LABEL}):
        print(f"container {container.short_id}", file=sys.stderr)
        container.remove(force=True)
    ours = {repository(settings): PROFILE_LABEL, CANDIDATE: PROFILE_LABEL, BASES: "io.torch-pool.base.inputs"}
    for name, label in ours.items():
        for image in client.images.list(name=name, filters={"label": label}):
            for tag in image.tags:
                print(f"image {tag}", file=sys.stderr)
                client.images.remove(tag)
    freed = client.api.prune_builds()["SpaceReclaimed"]
    print(f"build cache {freed / 1e6:.0f} MB", file=sys.stderr)
    shutil.rmtree(BUILD, ignore_errors=True)
    return 0
