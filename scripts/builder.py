"""The builder: an engine that answers, its client, and what the machine gives to each build."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import docker
from docker.errors import APIError, ImageNotFound
from torch_pool.refusal import Refusal

from scripts.bases import Table, load_table
from scripts.buildx import build
from scripts.context import BUILD
from scripts.engine import Engine, docker_client, ensure_engine
from scripts.inputs import Inputs, build_inputs
from scripts.machine import Machine, read_machine, require_disk
from scripts.settings import Settings


@dataclass(frozen=True)
class Builder:
    settings: Settings
    engine: Engine
    client: docker.DockerClient
    table: Table
    machine: Machine
    inputs: Inputs

    @property
    def no_cache(self) -> bool:
        return self.settings.no_cache.value == "1"


def open_builder(settings: Settings) -> Builder:
    """Makes sure of an engine, and says what builds take from this machine.

    Raises:
        Refusal: there is no engine and none may be set up, or the CA bundle is no certificate file.
    """
    table = load_table()
    engine = ensure_engine(settings)
    machine = read_machine(settings.ca_bundle, table.rootfs["suite"], os.environ)
    facts = [machine.pip_index, machine.ca_bundle, *machine.proxies]
    for line in [fact.shown for fact in facts if fact] + list(machine.notes):
        print(f"machine: {line}", file=sys.stderr)
    return Builder(settings, engine, docker_client(), table, machine, build_inputs(machine, os.environ))


@dataclass(frozen=True)
class Output:
    """Where a build goes: a tag in the engine; `compression` of its layers is zstd, gzip or none."""

    tag: str
    compression: str = ""


def run_build(
    builder: Builder, output: Output, dockerfile: Path, context: Path, arguments: Sequence[str]
) -> None:
    """Builds a Dockerfile into the engine.

    Raises:
        Refusal: see buildx.build.
    """
    command = [
        *builder.inputs.arguments,
        *(["--no-cache"] if builder.no_cache else []),
        f"--platform={builder.settings.platform.value}",
        *arguments,
        *_output_arguments(builder.engine, output),
        f"--file={dockerfile}",
        str(context),
    ]
    log = BUILD / "logs" / f"{output.tag.replace(':', '-')}.log"
    build(output.tag, command, builder.inputs.environ, log)


def _output_arguments(engine: Engine, output: Output) -> list[str]:
    """As a rule uncompressed: compressing 5 GB costs minutes, and an image that stays here gains nothing."""
    if not engine.image_store:
        return [f"--output=type=docker,name={output.tag}"]
    layers = "compression=uncompressed,unpack=true"
    if output.compression:
        layers = f"compression={output.compression},force-compression=true,unpack=false"
    return ["--provenance=false", f"--output=type=image,name={output.tag},{layers}"]


def image_labels(client: docker.DockerClient, tag: str) -> dict[str, str] | None:
    """The labels of an image in the engine; None where there is no such image."""
    try:
        return dict(client.images.get(tag).labels)
    except ImageNotFound:
        return None


def image_platform(client: docker.DockerClient, tag: str) -> str:
    """Such as linux/amd64, as the image itself says."""
    found = client.images.get(tag).attrs
    return f"{found['Os']}/{found['Architecture']}"


def require_room(builder: Builder, needed: int, what: str) -> None:
    """Checks the engine's disk before a build, where that disk is this machine's.

    Raises:
        Refusal: there are fewer than `needed` bytes; says how many are needed and free.
    """
    folder = Path(builder.engine.data)
    if builder.engine.data and folder.is_dir():
        require_disk(folder, needed, what)


def require_image(client: docker.DockerClient, tag: str) -> None:
    """Raises Refusal where the engine has no such image."""
    if image_labels(client, tag) is None:
        raise Refusal(
            f"there is no image {tag} in this engine; make build PROFILE={tag.rpartition(':')[2]} makes it"
        )


def image_id(client: docker.DockerClient, reference: str) -> str:
    """The id of an image in the engine; empty where there is no such image."""
    try:
        return str(client.images.get(reference).id)
    except ImageNotFound:
        return ""


def remove_nameless(client: docker.DockerClient, identity: str) -> None:
    """Frees an image that lost its last name to a newer one: with old bases below them they fill a disk.

    One that a container or another image still uses stays; `docker image prune` takes it later.
    """
    if not identity or not image_id(client, identity) or client.images.get(identity).tags:
        return
    try:
        client.images.remove(identity)
    except APIError as error:
        print(f"the replaced image {identity[:19]} stays: {error.explanation}", file=sys.stderr)


def uv_binary() -> Path:
    """The uv of this project's own environment, a static binary that runs in any base."""
    return Path(sys.executable).with_name("uv")
