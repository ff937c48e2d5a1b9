"""The catalogue: the profiles of this image, compiled when it was built, and a user's own in YAML."""

import os
import sys

from torch_pool.profile import Profile, load_profile, profile_from_values
from torch_pool.refusal import Refusal
from torch_pool.resolution import Chosen
from torch_pool.suggestion import suggest

_PACKAGE = os.path.dirname(os.path.abspath(__file__))
COMPILED = os.path.join(_PACKAGE, "compiled")
VENDOR = os.path.join(os.path.dirname(os.path.dirname(_PACKAGE)), "vendor")
"""Where PyYAML is: apart from the site packages, so that a user's choice of PyYAML and ours never meet."""


def choose_profile(word: str | None, baked: Profile) -> Chosen:
    """The profile that `word` names, by name or by path; the baked one for None. Raises Refusal."""
    if word is None:
        return Chosen(baked)
    if "/" in word or word.endswith((".yaml", ".yml")):
        return Chosen(_load_mounted(word), f"mounted profile {word}")
    if word not in profile_names():
        raise Refusal(
            f"TORCH_POOL_PROFILE={word!r} is not a profile of this image; {suggest(word, profile_names())}"
        )
    return Chosen(load_compiled(word), f"TORCH_POOL_PROFILE={word}")


def profile_names() -> list[str]:
    """The names of the compiled profiles, in order."""
    if not os.path.isdir(COMPILED):
        return []
    stems = (os.path.splitext(file)[0] for file in os.listdir(COMPILED) if file.endswith(".py"))
    return sorted(stem for stem in stems if stem != "__init__")


def load_compiled(name: str) -> Profile:
    """The compiled profile of that name; it must be one of profile_names()."""
    module = __import__(f"torch_pool.compiled.{name}", fromlist=["PROFILE"])
    return profile_from_values(module.PROFILE)


def _load_mounted(path: str) -> Profile:
    if VENDOR not in sys.path:
        sys.path.append(VENDOR)
    return load_profile(path, COMPILED)
