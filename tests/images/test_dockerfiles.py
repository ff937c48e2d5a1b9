import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.base_image import base_arguments
from scripts.bases import load_table
from scripts.build import image_arguments
from scripts.images import ROOT, load_images
from scripts.labels import Commit
from tests.scripts.passing import READY_BASE

BASES = ROOT / "images" / "bases"
BASE = BASES / "Dockerfile"
RENDERED = [ROOT / "images" / name / "Dockerfile" for name in load_images()]
DOCKERFILES = [BASE, *RENDERED]
PROGRAMS = sorted([*BASES.rglob("*.sh"), *BASES.rglob("*.py")])
LOCKS = [*sorted((ROOT / "images").rglob("requirements.txt")), BASES / "common.txt", BASES / "pip.txt"]
# BuildKit knows these without an ARG, and keeps them out of the history ("predefined ARGs").
PREDEFINED = {"SOURCE_DATE_EPOCH", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"}
OTHER_SOURCES = re.compile(
    r"--(?:extra-)?index(?:-url)?\b|--find-links|--trusted-host|--allow-insecure|UV_INDEX|EXTRA_INDEX|PIP_[A-Z]"
    r"|\bcurl\b|\bwget\b|--no-check|--force-yes|allow-unauthenticated"
)


def name(path):
    return str(path.relative_to(ROOT))


def code(path):
    """A file without its comments."""
    lines = path.read_text("utf-8").splitlines()
    return "\n".join(line for line in lines if not line.lstrip().startswith("#"))


def instructions(path):
    """Each instruction of a Dockerfile on one line."""
    return re.sub(r"\\\n\s*", "", code(path)).splitlines()


def declared(path):
    return {match[1] for line in instructions(path) if (match := re.match(r"ARG ([A-Z_]+)", line))}


def given(arguments):
    return {
        match[1] for word in arguments if (match := re.match(r"--build-arg=([A-Z_]+)=", word))
    } - PREDEFINED


def test_hadolint_finds_nothing():
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([hadolint, *DOCKERFILES], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_base_declares_what_it_is_given_and_is_given_what_it_declares():
    for base in load_table().bases.values():
        assert given(base_arguments(base, "/usr/bin/python3", "0")) == declared(BASE)


@pytest.mark.parametrize("path", RENDERED, ids=name)
def test_an_image_declares_what_it_is_given_and_is_given_what_it_declares(path):
    assert given(image_arguments(Commit("0" * 40, 0, dirty=False), READY_BASE, {})) == declared(path)


@pytest.mark.parametrize("path", DOCKERFILES, ids=name)
def test_every_argument_that_is_declared_is_used(path):
    for argument in declared(path):
        assert f"${{{argument}}}" in code(path)


@pytest.mark.parametrize("path", [*DOCKERFILES, *PROGRAMS], ids=name)
def test_no_second_index_and_no_way_around_a_certificate(path):
    assert OTHER_SOURCES.findall(code(path)) == []


@pytest.mark.parametrize("path", [*DOCKERFILES, *PROGRAMS], ids=name)
def test_packages_are_installed_at_two_places_only(path):
    installs = re.findall(r"\b(?:pip|apt-get)\b.* install .*", re.sub(r'echo "#.*"', "", code(path)))
    assert bool(installs) == (path.name in {"uv.sh", "apt.sh"}), installs


def test_what_is_installed_is_locked_with_hashes_from_one_index():
    words = code(BASES / "uv.sh").replace("\\\n", " ").split()
    assert {"--require-hashes", "--no-deps", "--no-config"} <= set(words)


@pytest.mark.parametrize("path", LOCKS, ids=name)
def test_every_line_of_a_lock_is_one_version_with_hashes(path):
    requirements = re.sub(r"\\\n\s*", "", code(path)).strip().splitlines()
    assert requirements
    for line in requirements:
        assert re.fullmatch(r"[a-z0-9.-]+==[^ ;]+ (?:; [^-]+ )?(?:--hash=sha256:[0-9a-f]{64} ?)+", line), line


def test_torch_is_locked_at_the_version_of_the_table():
    locked = re.search(r"(?m)^torch==(\S+)", (BASES / "wheels" / "requirements.txt").read_text())
    assert locked[1] == load_table().bases["wheels"].torch.partition("+")[0]


@pytest.mark.parametrize("path", RENDERED, ids=name)
def test_no_lock_of_an_image_brings_another_torch(path):
    lock = path.with_name("requirements.txt")
    names = re.findall(r"(?m)^([a-z0-9.-]+)==", lock.read_text() if lock.exists() else "")
    assert [each for each in names if re.match(r"torch|triton|nvidia-|numpy$", each)] == []


@pytest.mark.parametrize("path", [BASES / "common.sh", BASES / "packages.sh"], ids=name)
def test_torch_is_checked_after_every_installation(path):
    text = code(path)
    assert text.rindex("check_torch.py") > text.rindex("uv.sh")


def test_the_base_is_checked_against_the_table():
    assert instructions(BASE)[-1].endswith('bash /run/bases/common.sh "${PYTHON}" "${TORCH}" "${CUDA}"')


@pytest.mark.parametrize("path", DOCKERFILES, ids=name)
def test_secrets_are_mounted_by_id_and_nothing_of_them_is_kept(path):
    for mount in re.findall(r"--mount=type=secret\S*", code(path)):
        assert re.fullmatch(r"--mount=type=secret,id=(?:ca|index|apt_sources)", mount)
    kept = [line for line in instructions(path) if line.startswith(("ENV", "ARG", "LABEL", "COPY", "ADD"))]
    assert not re.search(r"(?i)proxy|cert|index[_-]url|token\b|password|/run/secrets", "\n".join(kept))


@pytest.mark.parametrize("path", RENDERED, ids=name)
def test_an_image_decides_the_nvidia_variables_and_never_names_a_cuda_version(path):
    text = code(path)
    assert 'NVIDIA_VISIBLE_DEVICES="void"' in text
    assert 'NVIDIA_DRIVER_CAPABILITIES="compute,utility"' in text
    assert 'NVIDIA_REQUIRE_CUDA="${NVIDIA_REQUIRE_CUDA}"' in text
    # With CUDA_VERSION alone the container toolkit would demand that version of the driver.
    assert not re.search(r"(?<!REQUIRE_)\bCUDA_VERSION\b", text)


@pytest.mark.parametrize("path", RENDERED, ids=name)
def test_packages_lie_below_the_launch_and_the_launch_below_the_profile(path):
    lines = instructions(path)[len(instructions(path)) - instructions(path)[::-1].index("FROM base") :]
    steps = [line for line in lines if line.startswith(("RUN", "COPY"))]
    kinds = ["packages" if "packages.sh" in line else line for line in steps]
    expected = ["COPY --link --from=launch /files/ /", "COPY --link --from=profile /files/ /"]
    packages = ["packages"] if path.with_name("requirements.txt").exists() else []
    assert kinds == packages + expected


@pytest.mark.parametrize("path", RENDERED, ids=name)
def test_an_image_runs_as_a_numeric_user_through_the_launch(path):
    user, entrypoint, command = instructions(path)[-3:]
    assert (user, command) == ("USER 1000:0", "CMD []")
    assert json.loads(entrypoint.removeprefix("ENTRYPOINT ")) == [
        *("tini", "-s", "--"),
        *("/opt/torch-pool/bin/python", "-I", "-S", "/opt/torch-pool/launch.py"),
    ]
