"""The Docker engine that builds: used as it is where one answers, else set up as engine_setup.py plans."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import docker
import requests
from docker.context import ContextAPI
from docker.errors import DockerException
from docker.utils import kwargs_from_env
from torch_pool.refusal import UNAVAILABLE, Refusal

from scripts.apt import redacted
from scripts.engine_setup import Lack, carry_out, plan_setup, read_host
from scripts.lock import exclusive
from scripts.settings import Settings

LOCK = Path("/run/lock/torch-pool-engine.lock")
_ANSWER_SECONDS = 30
# How the docker command, up to version 28 and from 29 on, says that nothing listens at the default socket.
_DOWN = re.compile(
    r"connect to the docker (?:daemon|API) at unix:///(?:var/)?run/docker\.sock", re.IGNORECASE
)
_BROKEN_FILE = re.compile(r"Error (?:loading|parsing) config file\W+(?:open )?(/[^:)\n]+)")
_CLIENT_VARIABLES = ("DOCKER_CONTEXT", "DOCKER_TLS", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH")
# How an engine reports the containerd image store (moby daemon/containerd/service.go).
_IMAGE_STORE = ["driver-type", "io.containerd.snapshotter.v1"]


class Engine(NamedTuple):
    """What the first `docker` on PATH says of itself and of its engine.

    `buildx` is unknown where `error` is the client's own. `endpoint` names what of the user's sends the
    client elsewhere, `broken_file` its configuration where that cannot be read; both are empty as a rule.
    `down`: nothing listens at the default socket, which an installation or a start cures.
    """

    client: str
    buildx: str
    error: str
    endpoint: str = ""
    broken_file: str = ""
    version: str = ""
    image_store: bool = False
    data: str = ""
    down: bool = False

    @property
    def lack(self) -> Lack:
        return Lack(client=not self.client, buildx=not self.buildx, engine=bool(self.error))


def ensure_engine(settings: Settings, environ: Mapping[str, str] = os.environ) -> Engine:
    """Return an engine that answers, with buildx; set one up where ENGINE=auto and the machine allow it.

    Raises:
        Refusal: There is none and none can be set up here; says what is missing and the commands.
    """
    engine = read_engine(environ)
    if not any(engine.lack):
        return engine
    _check_curable(engine)
    allowed = settings.engine.value != "none" and settings.dry_run.value == "0"
    if not allowed or os.geteuid() != 0:
        raise _refusal(engine, settings)
    with exclusive(LOCK, "waiting for another run that sets up the Docker engine"):
        # The run that we waited for may have done it.
        engine = read_engine(environ)
        if any(engine.lack):
            _check_curable(engine)
            _set_up(engine, environ)
    return _check_complete(read_engine(environ))


def _set_up(engine: Engine, environ: Mapping[str, str]) -> None:
    steps = plan_setup(engine.lack, read_host())
    print(f"torch-pool: {_missing(engine)}; setting it up (ENGINE=none forbids that):", file=sys.stderr)
    for step in steps:
        print(f"torch-pool: + {redacted(step.shell)}", file=sys.stderr)
        carry_out(step, lambda: not read_engine(environ).error)


def _refusal(engine: Engine, settings: Settings) -> Refusal:
    if settings.engine.value == "none":
        why = f"ENGINE=none (from {settings.engine.place}) forbids to set it up"
    else:
        why = "this is a dry run" if settings.dry_run.value == "1" else "only root may set it up"
    commands = "".join(f"\n  {redacted(step.shell)}" for step in plan_setup(engine.lack, read_host()))
    return Refusal(f"{_missing(engine)}, and {why}; the commands, as root:{commands}", UNAVAILABLE)


def _missing(engine: Engine) -> str:
    if engine.error:
        return f"no Docker engine answers ({engine.error})"
    return f"{engine.client} has no buildx"


def _check_curable(engine: Engine) -> None:
    """Refuse what an installation here would not cure: what the user has chosen, and any other error.

    Raises:
        Refusal: Says what stands in the way and how to remove it; nothing has been changed.
    """
    problem = f"docker does not work ({engine.error})" if engine.error else f"{engine.client} shows no buildx"
    if engine.broken_file:
        end = f"repair or remove {engine.broken_file}, which docker cannot read"
        raise Refusal(f"{problem}; {end}", UNAVAILABLE)
    if engine.error and engine.endpoint:
        cure = (
            "correct that or start that engine" if engine.client else "install docker-cli and docker-buildx"
        )
        end = f"{cure}, or unset it for an engine on this machine"
        raise Refusal(f"docker with {engine.endpoint} does not work ({engine.error}); {end}", UNAVAILABLE)
    if "permission denied" in engine.error.lower():
        end = "add the user to the group docker, or run as root"
        raise Refusal(f"the Docker engine does not let this user in ({engine.error}); {end}", UNAVAILABLE)
    if engine.client and engine.error and not engine.down:
        end = f"repair what `{engine.client} info` names, or put another docker first on PATH"
        raise Refusal(f"{problem}; {end}", UNAVAILABLE)


def _check_complete(engine: Engine) -> Engine:
    if engine.error:
        raise Refusal(f"the Docker engine was set up and does not answer ({engine.error})", UNAVAILABLE)
    if not engine.buildx:
        end = "another docker must come first on PATH, such as Debian's /usr/bin/docker"
        raise Refusal(f"{engine.client} does not see the installed buildx; {end}", UNAVAILABLE)
    return engine


def read_engine(environ: Mapping[str, str]) -> Engine:
    """Ask the first `docker` on PATH about itself, its buildx and its engine. Changes nothing."""
    client = shutil.which("docker", path=environ.get("PATH"))
    if not client:
        return Engine("", "", "docker is not installed", _endpoint_words(environ, "default"))
    command = (client, "info", "--format", "{{json .}}")
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env=environ, timeout=_ANSWER_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return parse_engine(client, "", f"no answer within {_ANSWER_SECONDS} s", environ)
    return parse_engine(client, done.stdout, done.stderr, environ)


def parse_engine(client: str, info: str, errors: str, environ: Mapping[str, str]) -> Engine:
    """Understand `docker info`: JSON on stdout, words on stderr; `environ` is what it was given."""
    said = _mapping(info)
    about = said.get("ClientInfo") or {}
    plugins = about.get("Plugins") or []
    version = said.get("ServerVersion") or ""
    words = [line for line in errors.splitlines() if line.strip()] or ["it says nothing"]
    broken = _BROKEN_FILE.search(errors)
    return Engine(
        client=client,
        buildx=next(
            (item["Version"] for item in plugins if item["Name"] == "buildx" and not item.get("Err")), ""
        ),
        error="" if version else redacted((said.get("ServerErrors") or words)[-1]),
        endpoint=_endpoint_words(environ, about.get("Context") or "default"),
        broken_file=broken[1] if broken else "",
        version=version,
        image_store=_IMAGE_STORE in (said.get("DriverStatus") or []),
        data=said.get("DockerRootDir") or "",
        # Only with JSON: without it nothing is known of buildx either. Docker 28 says it on stderr alone.
        down=bool(said) and any(_DOWN.search(line) for line in [*(said.get("ServerErrors") or []), *words]),
    )


def _mapping(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _endpoint_words(environ: Mapping[str, str], context: str) -> str:
    """Name what sends the client elsewhere: variables, else a context of its configuration."""
    host, chosen = environ.get("DOCKER_HOST"), {name: environ.get(name) for name in _CLIENT_VARIABLES}
    named = [f"DOCKER_HOST={redacted(host)}"] if host else []
    named += [f"{name}={value}" for name, value in chosen.items() if value and value != "default"]
    if not named and context != "default":
        return f"the context {context}"
    return " with ".join(named)


def docker_client(environ: Mapping[str, str] = os.environ) -> docker.DockerClient:
    """Return the SDK's client for the engine that the docker command uses: DOCKER_HOST, else the context.

    Raises:
        Refusal: The engine does not answer.
    """
    try:
        client = docker.DockerClient(**_endpoint(environ))
        client.ping()
    except (DockerException, requests.RequestException, OSError) as error:
        raise Refusal(
            f"the Docker engine does not answer ({redacted(str(error))}); docker info says more", UNAVAILABLE
        ) from error
    return client


def _endpoint(environ: Mapping[str, str]) -> dict[str, Any]:
    if environ.get("DOCKER_HOST"):
        return {**kwargs_from_env(environment=dict(environ))}
    context = ContextAPI.get_context(environ.get("DOCKER_CONTEXT") or None)
    return {"base_url": context.Host, "tls": context.TLSConfig or False} if context else {}
