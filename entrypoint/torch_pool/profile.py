"""A profile: the settings of one kind of workload; compiled to Python literals, it needs no parsing."""

from itertools import pairwise

from torch_pool.record import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Literal

    GpuPolicy = Literal["required", "wanted", "none"]


class Devices(NamedTuple):
    """Which GPUs the command sees: how many to pick, or which; neither leaves CUDA_VISIBLE_DEVICES alone."""

    pick: int | None = None
    choose: str = "first"
    listed: tuple[str, ...] = ()


def names_twice(listed: tuple[str, ...]) -> bool:
    """Whether two words can mean the same device: 0 and 00, or a UUID and the beginning of it."""
    # A comma ends an index, of which a beginning is another one; a UUID may be cut anywhere.
    words = sorted(f"{int(word)}," if word.isdigit() else word.lower() for word in listed)
    return any(later.startswith(word) for word, later in pairwise(words))


class Profile(NamedTuple):
    """`allocator` holds options as torch spells them, `memory` a share ("0.5") or size ("20GiB") of one GPU.

    `places` says where each key was written, such as `base.yaml:2`, also for what was inherited.
    """

    name: str
    summary: str
    allocator: "Mapping[str, str]"
    env: "Mapping[str, str]"
    places: "Mapping[str, str]"
    extends: str | None = None
    fallback: str = "none"
    devices: Devices = Devices()
    memory: str | None = None
    gpu: "GpuPolicy" = "wanted"
    shm_bytes: int | None = None
    incompatible: tuple[str, ...] = ()
    evidence: str | None = None

    @property
    def conf(self) -> str:
        """The value of PYTORCH_CUDA_ALLOC_CONF."""
        return ",".join(f"{option}:{value}" for option, value in self.allocator.items())


def load_profile(path: str, directory: str) -> Profile:
    """Read a YAML profile and what it extends.

    The name after `extends` is looked for beside the file, then in `directory`, as NAME.yaml or as a compiled
    NAME.py. Raises Refusal with file and line for whatever is not exactly a profile.
    """
    from torch_pool.profile_file import read_profile  # noqa: PLC0415 - only who reads YAML pays for it

    return read_profile(path, directory)


def compile_profile(profile: Profile) -> str:
    """Python source with the literals PROFILE and CONF, which a launch imports without reading YAML."""
    values = {key: _literal(value) for key, value in profile._asdict().items()}
    values["devices"] = profile.devices._asdict()
    lines = [f"    {key!r}: {value!r}," for key, value in values.items()]
    head = '"""Compiled from a profile by torch-pool; a change here is lost."""'
    return "\n".join([head, "", "PROFILE = {", *lines, "}", f"CONF = {profile.conf!r}", ""])


def profile_from_values(values: "Mapping[str, Any]") -> Profile:
    """The way back from the PROFILE literal of a compiled profile."""
    return Profile(**{**values, "devices": Devices(**values["devices"])})


def _literal(value: "Any") -> "Any":
    return dict(value) if hasattr(value, "keys") else value
