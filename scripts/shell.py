"""`make shell PROFILE=NAME`: a shell in a built image, with the current folder as its workspace."""

import os
import shutil
import sys
from pathlib import Path

from torch_pool.refusal import Refusal

from scripts.builder import require_image
from scripts.engine import docker_client, ensure_engine
from scripts.images import load_images
from scripts.settings import Settings, choose_profile
from scripts.tags import rolling_tag


def main(settings: Settings) -> int:
    """Becomes `docker run`; files that are made in the workspace belong to the caller.

    Raises:
        Refusal: there is no such image, or no terminal to type at.
    """
    images = load_images()
    tag = rolling_tag(images[choose_profile(settings.profile, images)], settings)
    if not sys.stdin.isatty():
        raise Refusal(f"make shell needs a terminal; for one command: docker run --rm {tag} COMMAND")
    ensure_engine(settings)
    require_image(docker_client(), tag)
    command = [
        *("docker", "run", "--rm", "--interactive", "--tty"),
        *(("--gpus", "all") if shutil.which("nvidia-smi") else ()),
        f"--user={os.getuid()}:0",
        f"--volume={Path.cwd()}:/workspace",
        *(tag, "bash"),
    ]
    sys.stdout.flush()
    os.execvp(command[0], command)  # noqa: S606 -- this process becomes docker; no shell is wanted
