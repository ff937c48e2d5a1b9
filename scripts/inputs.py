"""What a build takes from the machine: secrets and proxies for buildx, never a layer or a label."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch_pool.refusal import Refusal

from scripts.machine import Machine, sources_list

# Names of environment variables that carry a secret from this process to buildx.
INDEX, APT_SOURCES = "TORCH_POOL_SECRET_INDEX", "TORCH_POOL_SECRET_APT_SOURCES"


@dataclass(frozen=True)
class Inputs:
    """Arguments of `docker buildx build`, and the environment that they refer to."""

    arguments: tuple[str, ...]
    environ: Mapping[str, str]


def build_inputs(machine: Machine, environ: Mapping[str, str]) -> Inputs:
    """Secrets and proxies by name, their values only in the environment: no process list shows them.

    Raises:
        Refusal: buildx cannot take the path of the CA bundle.
    """
    values = {fact.name: fact.value for fact in machine.proxies}
    arguments = [word for name in values for word in ("--build-arg", name)]
    if machine.ca_bundle:
        if "," in machine.ca_bundle.value:
            raise Refusal(
                f"{machine.ca_bundle.shown} has a comma, which ends a value for buildx; copy the file"
            )
        arguments += ["--secret", f"id=ca,src={machine.ca_bundle.value}"]
    if machine.pip_index:
        values[INDEX] = machine.pip_index.value
        arguments += ["--secret", f"id=index,env={INDEX}"]
    if machine.apt_sources:
        values[APT_SOURCES] = sources_list(machine.apt_sources)
        arguments += ["--secret", f"id=apt_sources,env={APT_SOURCES}"]
    return Inputs(tuple(arguments), {**environ, **values})
