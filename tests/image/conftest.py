"""Image tests: real containers of the images that `make build-all` makes, on the real engine."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

# Its reaper is pulled from a registry; our containers carry a label and are removed by it.
os.environ["TESTCONTAINERS_RYUK_DISABLED"] = "true"

import docker
from testcontainers.core.container import DockerContainer
from testcontainers.core.wait_strategies import LogMessageWaitStrategy

from scripts.engine import docker_client
from scripts.images import ROOT, load_images
from scripts.settings import NAMES

LABEL = "io.torch-pool.container"
OURS = f"test-{os.getpid()}"
"""The label's value: another session on the same engine has its own, and cleans up after itself."""
IMAGES = sorted(load_images())


NOISE = re.compile(r"WARN(ING)?\b|\bERROR\b|[Ww]arning:|Traceback|torch-pool: (?!profile )")
USUAL = (": no GPU: no NVIDIA driver is to be seen; use", ": /dev/shm is 64 MiB, profile ")
"""What every container of this engine may say: it has no GPU, and the shared memory that Docker gives."""


@dataclass(frozen=True)
class Ended:
    status: int
    stdout: str
    stderr: str

    @property
    def noise(self) -> list[str]:
        """The lines that complain, but for the usual ones."""
        lines = (self.stdout + self.stderr).splitlines()
        noise = [line for line in lines if NOISE.search(line)]
        return [line for line in noise if "refused" in line or not any(text in line for text in USUAL)]


@pytest.fixture(scope="session")
def client() -> Iterator[docker.DockerClient]:
    """The engine, with every image built and passed by the gate; containers of these tests are removed."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("TORCH_POOL_CLI_")}
    # Empty means the default: what the caller's shell or `.env` says is about other builds.
    environ |= {row.name: "" for row in NAMES} | {"PYTHONPATH": str(ROOT / "entrypoint")}
    subprocess.run([sys.executable, "-m", "scripts", "build-all"], cwd=ROOT, env=environ, check=True)
    client = docker_client()
    yield client
    for container in client.containers.list(all=True, filters={"label": f"{LABEL}={OURS}"}):
        container.remove(force=True)
    client.close()


Run = Callable[..., Ended]


@pytest.fixture
def run(client: docker.DockerClient) -> Iterator[Run]:
    """Runs a command in a new container of an image to its end, its two streams apart.

    The test fails on any complaint but those that it `expects`, one text for each line.
    """
    started: list[DockerContainer] = []

    def run(
        image: str,
        *command: str,
        expects: Sequence[str] = (),
        timeout_seconds: float = 180,
        **options: object,
    ) -> Ended:
        container = start(started, image, *command, **options)
        wrapped = container.get_wrapped_container()
        status = wrapped.wait(timeout=timeout_seconds)["StatusCode"]
        out, err = (
            wrapped.logs(stdout=stdout, stderr=not stdout).decode("utf-8", "surrogateescape")
            for stdout in (True, False)
        )
        ended = Ended(status, out, err)
        check_noise(ended, expects)
        return ended

    yield run
    for container in started:
        container.stop()


def check_noise(ended: Ended, expected: Sequence[str]) -> None:
    """Each complaint must be expected, and each expected one be there, in this order."""
    assert len(ended.noise) == len(expected), ended.noise
    for line, text in zip(ended.noise, expected, strict=True):
        assert text in line


@pytest.fixture
def started(client: docker.DockerClient) -> Iterator[Callable[..., DockerContainer]]:
    """Starts a container and leaves it running until the test ends."""
    containers: list[DockerContainer] = []
    yield lambda image, *command, **options: start(containers, image, *command, **options)
    for container in containers:
        container.stop()


def start(
    kept: list[DockerContainer],
    image: str,
    *command: str,
    environment: Mapping[str, str] | None = None,
    volumes: Mapping[Path, str] | None = None,
    **options: object,
) -> DockerContainer:
    """`image` is a profile's name or a whole reference; further options are those of the docker SDK's run."""
    container = DockerContainer(f"torch-pool:{image}" if image in IMAGES else image)
    container.with_envs(**(environment or {})).with_kwargs(labels={LABEL: OURS}, **options)
    for host, inside in (volumes or {}).items():
        container.with_volume_mapping(str(host), inside, "rw")
    # The SDK's list form: a string would be split like a shell's line.
    container._command = list(command)
    kept.append(container)
    return container.start()


def printed(container: DockerContainer, pattern: str) -> str:
    """What the container has printed on stdout, as soon as that has the pattern."""
    strategy = LogMessageWaitStrategy(re.compile(pattern, re.DOTALL))
    strategy.with_startup_timeout(60).with_poll_interval(0.05).wait_until_ready(container)
    return container.get_logs()[0].decode()


@pytest.fixture(params=IMAGES)
def image(request: pytest.FixtureRequest) -> str:
    """Every image in turn."""
    name: str = request.param
    return name


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A folder of the host that another uid owns."""
    folder = tmp_path / "workspace"
    folder.mkdir(mode=0o755)
    os.chown(folder, 4321, 0)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder to mount, which every uid of a container can read."""
    tmp_path.chmod(0o755)
    return tmp_path
