"""A profile file: YAML that is exactly a profile, together with what it extends."""

import os
from typing import Any

from torch_pool.profile import Profile, profile_from_values
from torch_pool.profile_keys import READERS, is_profile_name, refuse_unknown
from torch_pool.refusal import Refusal
from torch_pool.strict_yaml import Entry, parse_file
from torch_pool.suggestion import suggest

_REQUIRED = {"summary": "one line on what it is for", "allocator": "{backend: cudaMallocAsync}"}
_OWN = ("name", "summary", "extends", "evidence")


def read_profile(path: str, directory: str, below: tuple[str, ...] = ()) -> Profile:
    """The profile in the file; `below` are the files that extend it, to notice a circle."""
    name = os.path.splitext(os.path.basename(path))[0]
    if not is_profile_name(name):
        raise Refusal(f"{path}: a profile file is named like my-profile.yaml, in lower case")
    entries = parse_file(path)
    refuse_unknown(entries, READERS, "a key of a profile")
    values = {key: READERS[key](entry) for key, entry in entries.items()}
    inherited: dict[str, Any] = {}
    if "extends" in values:
        parent = _find_parent(entries["extends"], path, directory, (*below, os.path.realpath(path)))
        inherited = _inheritable(parent)
    for key, example in _REQUIRED.items():
        if key not in values and key not in inherited:
            raise Refusal(f"{path}: the key {key!r} is missing; add {key}: {example}")
    places = {key: f"{name}.yaml:{entry.place.rpartition(':')[2]}" for key, entry in entries.items()}
    return _merge(inherited, {**values, "name": name, "places": places})


def _find_parent(entry: Entry, path: str, directory: str, below: tuple[str, ...]) -> Profile:
    name, beside = entry.text, os.path.dirname(path)
    candidates = [os.path.join(directory, f"{name}{ending}") for ending in (".yaml", ".py")]
    # A mounted infer.yaml that extends infer means the one of the image, not itself.
    if f"{name}.yaml" != os.path.basename(path):
        candidates.insert(0, os.path.join(beside, f"{name}.yaml"))
    for candidate in filter(os.path.isfile, candidates):
        if os.path.realpath(candidate) in below:
            circle = " -> ".join(map(os.path.basename, (*below, candidate)))
            raise Refusal(f"{entry.place}: 'extends' goes in a circle ({circle}); remove one of them")
        return (
            _load_compiled(candidate)
            if candidate.endswith(".py")
            else read_profile(candidate, directory, below)
        )
    known = filter(is_profile_name, (os.path.splitext(file)[0] for file in _files(beside, directory)))
    raise Refusal(f"{entry.place}: no profile {name!r} to extend; {suggest(name, known)}")


def _load_compiled(path: str) -> Profile:
    import runpy  # noqa: PLC0415 - only a mounted profile in an image pays for the import

    return profile_from_values(runpy.run_path(path)["PROFILE"])


def _inheritable(parent: Profile) -> dict[str, Any]:
    """What a profile takes over: every setting, but not what its parent says of itself."""
    values = {key: value for key, value in parent._asdict().items() if key not in _OWN}
    return {**values, "places": {key: place for key, place in parent.places.items() if key not in _OWN}}


def _merge(inherited: dict[str, Any], values: dict[str, Any]) -> Profile:
    """Mappings that name things are joined; every other value replaces the inherited one whole."""
    joined = {key: {**inherited.get(key, {}), **values.get(key, {})} for key in ("env", "places")}
    merged = {**inherited, **values, **joined}
    if "shm" in merged:
        merged["shm_bytes"] = merged.pop("shm")
    return Profile(**merged)


def _files(*directories: str) -> list[str]:
    return [file for directory in directories if os.path.isdir(directory) for file in os.listdir(directory)]
