"""Containers for a moment: run one, keep its two streams apart, leave nothing behind."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import docker
import requests
from docker.errors import APIError, NotFound
from torch_pool.refusal import Refusal

LABEL = "io.torch-pool.container"
MISSING_COMMAND = 127


@dataclass(frozen=True)
class Outcome:
    """How a container ended; `status` is None where it ran out of time."""

    status: int | None
    stdout: str
    stderr: str


def run_container(
    client: docker.DockerClient,
    image: str,
    command: Sequence[str],
    *,
    timeout_seconds: float = 120,
    **options: Any,
) -> Outcome:
    """Runs a command in a new container to its end and removes it.

    A command that is not in the image gives status 127, as a shell does; the SDK itself raises there, and its
    own `run` would leave the container behind.

    Raises:
        Refusal: the image is not there.
    """
    try:
        container = client.containers.create(image, list(command), labels={LABEL: image}, **options)
    except NotFound as error:
        raise Refusal(f"there is no image {image} in this engine; build it first") from error
    try:
        container.start()
        status = container.wait(timeout=timeout_seconds)["StatusCode"]
        return Outcome(status, _log(container, stdout=True), _log(container, stderr=True))
    except requests.exceptions.RequestException:
        return Outcome(None, _log(container, stdout=True), _log(container, stderr=True))
    except APIError as error:
        return Outcome(MISSING_COMMAND, "", str(error.explanation))
    finally:
        container.remove(force=True)


def _log(container: Any, *, stdout: bool = False, stderr: bool = False) -> str:
    data: bytes = container.logs(stdout=stdout, stderr=stderr)
    return data.decode("utf-8", "replace")


def remove_containers(client: docker.DockerClient, image: str) -> None:
    """Removes what `run_container` left of an image when it was killed; one may be going at this moment."""
    for container in client.api.containers(all=True, quiet=True, filters={"label": f"{LABEL}={image}"}):
        with suppress(APIError):
            client.api.remove_container(container["Id"], force=True)
