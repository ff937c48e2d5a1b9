"""`make build PROFILE=NAME`: one image, built, checked by the gate, then tagged."""

import hashlib
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from docker.errors import APIError
from torch_pool.refusal import USAGE, Refusal

from scripts import facts, gate
from scripts.base_image import ReadyBase, ensure_base
from scripts.bases import Base, candidates, load_table
from scripts.builder import (
    Builder,
    Output,
    image_id,
    image_labels,
    open_builder,
    remove_nameless,
    require_room,
    run_build,
    uv_binary,
)
from scripts.containers import remove_containers
from scripts.context import BUILD, lay_out_image
from scripts.facts import Facts
from scripts.images import ROOT, Image, load_images
from scripts.labels import Commit, build_labels, read_commit, read_home
from scripts.lock import exclusive
from scripts.render import dockerfile_path, load_image_profile, render, write_if_changed
from scripts.report import print_report
from scripts.settings import Setting, Settings, choose_profile, print_settings, shown
from scripts.tags import PROFILE_LABEL, content_tag, rolling_tag

CANDIDATE = "torch-pool-candidate"


def main(settings: Settings) -> int:
    """Builds the image that PROFILE names and prints its tags.

    Raises:
        Refusal: a setting, a base, the build or the gate; the previous tags stay as they are.
    """
    images = load_images()
    image = images[choose_profile(settings.profile, images)]
    build_images([image], settings)
    return 0


def build_images(images: list[Image], settings: Settings) -> None:
    """Builds images one after another on one base.

    Raises:
        Refusal: see main; the images before it are built.
    """
    print_settings(settings, sys.stderr)
    for image in images:
        print_plan(image, settings)
    if settings.dry_run.value == "1":
        return
    builder = open_builder(settings)
    for image in images:
        refuse_foreign_tag(builder, rolling_tag(image, settings))
    base = ensure_base(builder)
    for image in images:
        print(*build_image(builder, image, base), sep="\n")


def print_plan(image: Image, settings: Settings) -> None:
    """Says what will be built from what, before anything happens.

    Raises:
        Refusal: the profile is wrong, or BASE is no base and no reference.
    """
    profile = load_image_profile(image)
    bases = candidates(settings.base, load_table(), settings.base_registry)
    for base in bases:
        require_platform(base, settings.platform)
    names = " or ".join(base.pinned or f"the {base.name} base, built here" for base in bases)
    print(f"plan: {rolling_tag(image, settings)} from {names}, conf {profile.conf}", file=sys.stderr)


def require_platform(base: Base, platform: Setting) -> None:
    """Refuses a platform that a base is not made for, before anything starts; one image, one platform.

    Raises:
        Refusal: with the platforms that there are.
    """
    known = base.platforms or ("linux/amd64", "linux/arm64")
    if platform.value not in known:
        raise Refusal(
            f"PLATFORM is {shown(platform.value)} (from {platform.origin}), but the base {base.name} "
            f"is made for {' or '.join(known)}",
            USAGE,
        )


def refuse_foreign_tag(builder: Builder, tag: str) -> None:
    """Refuses to move a name that something else has; it would be lost."""
    labels = image_labels(builder.client, tag)
    if labels is not None and PROFILE_LABEL not in labels:
        raise Refusal(f"the name {tag} is taken by an image that is not ours; rename it or set REGISTRY")


def build_image(builder: Builder, image: Image, base: ReadyBase) -> tuple[str, ...]:
    """Builds one image on a base and tags it once the gate has passed it; returns its tags.

    Raises:
        Refusal: see main.
    """
    waiting = f"another build of {image.name} runs; waiting for it"
    with exclusive(BUILD / "locks" / f"{image.name}.lock", waiting):
        candidate = candidate_tag(image)
        _remove_candidate(builder, candidate)
        try:
            build_candidate(builder, image, base, Output(candidate))
            return _pass_gate(builder, candidate, image, base)
        finally:
            _remove_candidate(builder, candidate)


def _remove_candidate(builder: Builder, candidate: str) -> None:
    """Only the name, and containers of a gate that was killed; the image keeps the tags that it got."""
    remove_containers(builder.client, candidate)
    with suppress(APIError):
        builder.client.images.remove(candidate, noprune=True)


def candidate_tag(image: Image) -> str:
    """One name per checkout and image: two checkouts may build at once, and a killed one is reused."""
    checkout = hashlib.sha256(str(ROOT).encode()).hexdigest()[:8]
    return f"{CANDIDATE}:{image.name}-{checkout}"


def build_candidate(builder: Builder, image: Image, base: ReadyBase, output: Output) -> None:
    """Builds an image under a name that no user has.

    Raises:
        Refusal: see builder.run_build.
    """
    path, profile = dockerfile_path(image), load_image_profile(image)
    if write_if_changed(path, render(image, profile)):
        print(f"rendered images/{image.name}/Dockerfile anew; commit it", file=sys.stderr)
    # What it adds is there unpacked and as blobs, with a copy while it is made; then logs and contexts.
    require_room(builder, 3_000_000 * image.budget_mb + 500_000_000, f"the image {image.name}")
    inherited = image_labels(builder.client, base.tag) or {}
    commit = read_commit()
    labels = build_labels(commit, base, read_home(), inherited)
    arguments = image_arguments(commit, base, labels)
    context = lay_out_image(image, uv_binary())
    run_build(builder, output, path, context, arguments)


def image_arguments(commit: Commit, base: ReadyBase, labels: Mapping[str, str]) -> list[str]:
    """The base, what varies with it, and the labels of this build."""
    return [
        f"--build-context=base=docker-image://{base.tag}",
        f"--build-arg=NVIDIA_REQUIRE_CUDA={base.base.require_cuda}",
        f"--build-arg=SOURCE_DATE_EPOCH={commit.time}",
        *(f"--label={name}={value}" for name, value in labels.items()),
    ]


def _pass_gate(builder: Builder, candidate: str, image: Image, base: ReadyBase) -> tuple[str, ...]:
    rolling = rolling_tag(image, builder.settings)
    stamp = gate_stamp(image, image_id(builder.client, candidate))
    if stamp.exists():
        print(f"{rolling} is unchanged since the gate passed it", file=sys.stderr)
        read = base.facts
    else:
        read = _judge(builder, candidate, image, base)
        stamp.parent.mkdir(parents=True, exist_ok=True)
        stamp.touch()
    tags = rolling, content_tag(rolling, read)
    for tag in tags:
        refuse_foreign_tag(builder, tag)
    replaced = {image_id(builder.client, tag) for tag in tags}
    for tag in tags:
        builder.client.images.get(candidate).tag(*tag.rsplit(":", 1))
    for identity in replaced:
        remove_nameless(builder.client, identity)
    return tags


def gate_stamp(image: Image, identity: str) -> Path:
    """A file that says: this image passed the gate as it is now, with what image.yaml now asks of it."""
    rules = hashlib.sha256(repr(image).encode())
    for program in (gate.__file__, facts.PROBE):
        rules.update(Path(program).read_bytes())
    return BUILD / "gate" / f"{identity.removeprefix('sha256:')[:24]}-{rules.hexdigest()[:12]}"


def _judge(builder: Builder, candidate: str, image: Image, base: ReadyBase) -> Facts:
    """What the gate read from the image that it passed."""
    evidence = gate.collect(builder.client, candidate, image, load_image_profile(image), base)
    results = gate.judge(evidence)
    print_report(image, evidence, results, sys.stderr)
    gate.require_passed(rolling_tag(image, builder.settings), results)
    return evidence.facts
