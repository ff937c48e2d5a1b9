"""The gate: what an image must be before it gets a tag. Each check names what was expected and what was found."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import docker
from torch_pool.profile import Profile
from torch_pool.refusal import Refusal

from scripts.base_image import ReadyBase
from scripts.containers import Outcome, run_container
from scripts.facts import Facts, read_facts
from scripts.images import Image
from scripts.layers import Layer, own_layers, read_layers, total_bytes

ECHO = "torch-pool-gate"
BACKENDS = {"backend:cudaMallocAsync": "cudaMallocAsync"}
LABELS = (
    *("created", "revision", "version", "title", "description", "ref.name", "vendor", "licenses", "authors"),
)
FORBIDDEN = ("PROXY", "SSL_CERT", "CA_BUNDLE", "PIP_CERT", "INDEX_URL", "TOKEN", "PASSWORD", "SECRET")


@dataclass(frozen=True)
class Evidence:
    """Everything that the checks look at; `config` is the Config of `docker image inspect`."""

    image: Image
    profile: Profile
    base: ReadyBase
    config: Mapping[str, Any]
    facts: Facts
    echo: Outcome
    layers: tuple[Layer, ...]
    history: tuple[str, ...]


@dataclass(frozen=True)
class Result:
    check: str
    expected: str
    found: str

    @property
    def passed(self) -> bool:
        return self.expected == self.found


def collect(
    client: docker.DockerClient, tag: str, image: Image, profile: Profile, base: ReadyBase
) -> Evidence:
    """Runs the image twice, at the same time, and reads what the engine knows of it.

    Raises:
        Refusal: the probe did not run.
    """
    with ThreadPoolExecutor() as pool:
        facts = pool.submit(read_facts, client, tag, ["python"], imports=image.imports)
        echo = pool.submit(run_container, client, tag, ["echo", ECHO])
        inspected = client.api.inspect_image(tag)
        history = tuple(entry["CreatedBy"] for entry in client.api.history(tag))
        layers = read_layers(client, tag)
        return Evidence(
            image, profile, base, inspected["Config"], facts.result(), echo.result(), layers, history
        )


def judge(evidence: Evidence) -> tuple[Result, ...]:
    """The result of every check, in the order of CHECKS."""
    return tuple(
        Result(name, str(expected), str(found))
        for name, check in CHECKS
        for expected, found in [check(evidence)]
    )


def require_passed(tag: str, results: Sequence[Result]) -> None:
    """Raises Refusal (status 1) with the first failed check, and how many more failed."""
    failed = [result for result in results if not result.passed]
    if failed:
        first = failed[0]
        more = (
            f" (and {len(failed) - 1} more: {', '.join(r.check for r in failed[1:])})" if failed[1:] else ""
        )
        raise Refusal(
            f"the gate refused {tag}: {first.check}: expected {first.expected}, found {first.found}{more}; "
            "the previous tag, if any, is untouched",
            1,
        )


Pair = tuple[object, object]


def _one(versions: Sequence[str]) -> str:
    return versions[0] if len(versions) == 1 else f"{len(versions)} copies ({', '.join(versions)})"


def _installed(name: str) -> Callable[[Evidence], Pair]:
    def check(evidence: Evidence) -> Pair:
        expected = _one(evidence.base.facts.installed[name])
        return f"one {name}, {expected}", f"one {name}, {_one(evidence.facts.installed[name])}"

    return check


def _backend(evidence: Evidence) -> Pair:
    return evidence.profile.allocator.get("backend", "native"), evidence.facts.backend


def _baked_conf(evidence: Evidence) -> Pair:
    environment = dict(line.partition("=")[::2] for line in evidence.config["Env"])
    return evidence.profile.conf, environment.get("PYTORCH_CUDA_ALLOC_CONF", "")


def _labels(evidence: Evidence) -> Pair:
    labels = evidence.config["Labels"] or {}
    expected = {
        "profile": evidence.profile.name,
        "conf": evidence.profile.conf,
        "torch": evidence.facts.torch,
        "cuda": evidence.facts.cuda,
        "python": evidence.facts.python,
    }
    found = {name: labels.get(f"io.torch-pool.{name}", "") for name in expected}
    missing = [name for name in LABELS if not labels.get(f"org.opencontainers.image.{name}")]
    return expected, {**found, **({"missing": missing} if missing else {})}


def _secrets(evidence: Evidence) -> Pair:
    names = [line.partition("=")[0] for line in evidence.config["Env"]]
    found = [name for name in names if any(word in name.upper() for word in FORBIDDEN)]
    found += [line for line in evidence.history if "BEGIN CERTIFICATE" in line or "_PROXY=" in line.upper()]
    return [], found


def _nvidia(evidence: Evidence) -> Pair:
    environment = dict(line.partition("=")[::2] for line in evidence.config["Env"])
    names = ("NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_REQUIRE_CUDA")
    expected = ("void", "compute,utility", evidence.base.base.require_cuda)
    return " ".join(expected), " ".join(environment.get(name, "") for name in names)


def _size(evidence: Evidence) -> Pair:
    budget = evidence.image.budget_mb
    added = total_bytes(own_layers(evidence.layers, evidence.base.layers)) / 1e6
    fits = f"at most {budget} MB more than its base"
    return fits, fits if added <= budget else f"{added:.1f} MB more than its base"


def _base_size(evidence: Evidence) -> Pair:
    budget = evidence.base.base.budget_mb
    size = total_bytes(evidence.base.layers) / 1e6
    fits = f"at most {budget} MB" if budget else "no budget"
    return fits, fits if not budget or size <= budget else f"{size:.0f} MB"


CHECKS: tuple[tuple[str, Callable[[Evidence], Pair]], ...] = (
    ("torch", lambda e: (e.base.base.torch or e.base.facts.torch, e.facts.torch)),
    ("CUDA", lambda e: (e.base.base.cuda or e.base.facts.cuda, e.facts.cuda)),
    ("copies of torch", _installed("torch")),
    ("copies of numpy", _installed("numpy")),
    ("requirements", lambda e: ((), e.facts.missing_requirements)),
    ("imports", lambda e: ((), e.facts.failed_imports)),
    ("compiler", lambda e: ((True, True), (e.facts.compiler, e.facts.python_headers))),
    ("labels", _labels),
    ("no secrets", _secrets),
    ("user", lambda e: ("1000:0", f"{e.facts.uid}:{e.facts.gid}")),
    ("writable", lambda e: ((), e.facts.unwritable)),
    ("modes", lambda e: ((), e.facts.wrong_modes)),
    ("stdout of echo", lambda e: ((0, f"{ECHO}\n"), (e.echo.status, e.echo.stdout))),
    ("backend", _backend),
    ("baked conf", _baked_conf),
    ("NVIDIA variables", _nvidia),
    ("base size", _base_size),
    ("size", _size),
)
