"""How a machine without an engine gets one: a plan of steps, shown and carried out from the same records.

Debian 12 has no buildx and an engine that is too old for the containerd image store. The next release's
packages need only libc 2.34 and run here; they come from the machine's own mirror, pinned so that nothing
else of that release is ever installed. runc stays this release's own: the next one's needs a newer libc.
"""

import json
import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from torch_pool.refusal import UNAVAILABLE, Refusal

from scripts.apt import SYSTEM_PATH, Run, install_steps, run_apt
from scripts.machine import debian_sources, read_apt_targets, read_output

PACKAGES = ("docker.io", "docker-cli", "docker-buildx", "iptables", "ca-certificates")
PINNED_RELEASE = "trixie"
PINNED_PACKAGES = ("docker.io", "docker-cli", "docker-buildx", "containerd")
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
DAEMON_JSON = Path("/etc/docker/daemon.json")
SOURCE = Path(f"/etc/apt/sources.list.d/torch-pool-{PINNED_RELEASE}.sources")
PREFERENCES = Path("/etc/apt/preferences.d/torch-pool")
DAEMON_LOG = Path("/var/log/torch-pool-dockerd.log")
DAEMON_PID = Path("/var/run/docker.pid")
APT_LOG = Path("build/logs/apt-engine.log")
_START_SECONDS = 60


class Lack(NamedTuple):
    """What is missing for a build."""

    client: bool
    buildx: bool
    engine: bool


class Host(NamedTuple):
    """`debian` is the codename, empty elsewhere; `pinned_mirror` serves PINNED_RELEASE, empty if unknown."""

    debian: str
    dockerd: bool
    daemon_json: bool
    systemd: bool
    has_pinned_release: bool
    pinned_mirror: str


class WriteFile(NamedTuple):
    path: Path
    text: str

    @property
    def shell(self) -> str:
        lines = " ".join(shlex.quote(line) for line in self.text.splitlines())
        folder, path = shlex.quote(str(self.path.parent)), shlex.quote(str(self.path))
        return f"mkdir -p {folder} && printf '%s\\n' {lines} > {path}"


class StartDaemon(NamedTuple):
    log: Path = DAEMON_LOG
    pid_file: Path = DAEMON_PID

    @property
    def shell(self) -> str:
        return f"setsid dockerd > {self.log} 2>&1 < /dev/null &"


Step = WriteFile | Run | StartDaemon


def plan_setup(lack: Lack, host: Host) -> tuple[Step, ...]:
    """Return the steps from `lack` to an engine with buildx.

    Raises:
        Refusal: Nothing is known to do for this system.
    """
    packages = _packages(lack, host)
    steps = [*_install(packages, host), *_start(host)] if lack.engine else _install(packages, host)
    return tuple(steps)


def _packages(lack: Lack, host: Host) -> tuple[str, ...]:
    if lack.engine and not host.dockerd:
        return PACKAGES
    named = (("docker-cli", lack.client), ("docker-buildx", lack.buildx))
    return tuple(package for package, missing in named if missing)


def _install(packages: tuple[str, ...], host: Host) -> list[Step]:
    if not packages:
        return []
    if not host.debian:
        raise Refusal(
            "no Docker engine with buildx is here, and only Debian 12 and newer can be given one from here;"
            " install Docker Engine with its buildx plugin, or name a machine that has it in DOCKER_HOST",
            UNAVAILABLE,
        )
    steps: list[Step] = []
    # Before the first start: images of the other store are out of sight after a change.
    if "docker.io" in packages and not host.daemon_json:
        steps.append(
            WriteFile(DAEMON_JSON, json.dumps({"features": {"containerd-snapshotter": True}}) + "\n")
        )
    if host.debian == "bookworm":
        steps += _pinned_source(host)
    return [*steps, *install_steps(packages)]


def _pinned_source(host: Host) -> list[Step]:
    wanted = f"Pin: release o=Debian,n={PINNED_RELEASE}"
    pins = f"Package: {' '.join(PINNED_PACKAGES)}\n{wanted}\nPin-Priority: 500\n"
    if host.has_pinned_release:
        # Its owner has decided on the rest of that release.
        return [WriteFile(PREFERENCES, pins)]
    if not host.pinned_mirror:
        raise Refusal(
            "apt's sources name no Debian mirror to install the Docker engine from; add one", UNAVAILABLE
        )
    source = (
        f"Types: deb\nURIs: {host.pinned_mirror}\nSuites: {PINNED_RELEASE}\nComponents: main\n"
        f"Signed-By: {KEYRING}\n"
    )
    # The pins first: an apt that runs between the two must not see the source without them.
    pins += f"\nPackage: *\n{wanted}\nPin-Priority: -1\n"
    return [WriteFile(PREFERENCES, pins), WriteFile(SOURCE, source)]


def _start(host: Host) -> list[Step]:
    return [Run(("systemctl", "enable", "--now", "docker"))] if host.systemd else [StartDaemon()]


def read_host(root: Path = Path("/")) -> Host:
    """Read what the plan depends on."""
    targets = read_apt_targets()
    mirror = next((source.uri for source in debian_sources(targets, PINNED_RELEASE)), "")
    release = root / "etc/os-release"
    return Host(
        debian=parse_debian(release.read_text() if release.exists() else ""),
        dockerd=_has_dockerd(),
        daemon_json=(root / DAEMON_JSON.relative_to("/")).exists(),
        systemd=(root / "run/systemd/system").is_dir(),
        has_pinned_release=has_release(targets, PINNED_RELEASE, besides=SOURCE),
        pinned_mirror=mirror,
    )


def _has_dockerd() -> bool:
    """Tell whether an engine is installed; one of Debian whose installation was interrupted is not."""
    path = f"{os.environ.get('PATH', '')}:{SYSTEM_PATH}"
    status = read_output("dpkg-query", "--show", "--showformat=${db:Status-Status}", "docker.io")
    half = status in {"half-installed", "unpacked", "half-configured", "triggers-awaited", "triggers-pending"}
    return shutil.which("dockerd", path=path) is not None and not half


def has_release(targets: str, release: str, *, besides: Path) -> bool:
    """Tell whether the sources of `read_apt_targets` name a release in another file than `besides`."""
    rows = [line.split("|") for line in targets.splitlines()]
    return any(release in row[:2] and not row[-1].startswith(f"{besides}:") for row in rows)


def parse_debian(os_release: str) -> str:
    """Return the codename of a Debian from 12 on, or an empty string."""
    pairs = (line.partition("=") for line in os_release.splitlines())
    fields = {name: value.strip("\"'") for name, _, value in pairs}
    # Testing and unstable have no VERSION_ID.
    recent = int(fields.get("VERSION_ID", "99").partition(".")[0]) >= 12
    return fields.get("VERSION_CODENAME", "") if fields.get("ID") == "debian" and recent else ""


def carry_out(step: Step, answers: Callable[[], bool]) -> None:
    """Do one step of the plan; `answers` tells whether the engine is up.

    Raises:
        Refusal: It failed; says why, and where the log is.
    """
    match step:
        case WriteFile(path, text):
            path.parent.mkdir(parents=True, exist_ok=True)
            fresh = path.with_name(f".{path.name}.torch-pool")
            fresh.write_text(text)
            fresh.replace(path)
        case Run(command, may_fail):
            run_apt(command, APT_LOG, may_fail=may_fail)
        case StartDaemon():
            start_daemon(step, answers)


def start_daemon(daemon: StartDaemon, answers: Callable[[], bool]) -> None:
    """Start dockerd in a session of its own and wait until it answers; one that is starting is waited for.

    Raises:
        Refusal: It stopped, or does not answer in time; with the last lines of its log.
    """
    process = None if _runs(daemon.pid_file) else _spawn(daemon.log)
    deadline = time.monotonic() + _START_SECONDS
    while not answers():
        stopped = process is not None and process.poll() is not None
        if stopped or time.monotonic() > deadline:
            what = "stopped" if stopped else f"does not answer after {_START_SECONDS} s"
            if process and not stopped:
                process.terminate()
            raise Refusal(f"dockerd {what}; the last lines of {daemon.log}:{_tail(daemon.log)}", UNAVAILABLE)
        time.sleep(0.1)
    if process:
        # It outlives us on purpose; subprocess warns about a child without a result.
        process.returncode = 0


def _runs(pid_file: Path) -> bool:
    """Tell whether dockerd runs; remove the file of a killed one, whose number may be another's by now."""
    try:
        program = Path(f"/proc/{int(pid_file.read_text())}/comm").read_text().strip()
    except (OSError, ValueError):
        program = ""
    if program != "dockerd":
        pid_file.unlink(missing_ok=True)
    return program == "dockerd"


def _spawn(log: Path) -> subprocess.Popen[bytes]:
    # iptables, which dockerd calls, is in a folder that not every PATH has.
    environ = os.environ | {"PATH": f"{os.environ.get('PATH', os.defpath)}:{SYSTEM_PATH}"}
    with log.open("wb") as out:
        return subprocess.Popen(
            ["dockerd"],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=environ,
            start_new_session=True,
        )


def _tail(log: Path) -> str:
    lines = log.read_text("utf-8", errors="replace").splitlines() if log.exists() else []
    return "".join(f"\n  {line}" for line in lines[-5:])
