"""`torch-pool profiles`: the profiles in this image and what each is for."""

import sys

from torch_pool.catalogue import load_compiled, profile_names
from torch_pool.record import TYPE_CHECKING
from torch_pool.refusal import USAGE, Refusal

if TYPE_CHECKING:
    from torch_pool.launch import Baked
    from torch_pool.profile import Profile


def main(argv: list[str], baked: "Baked") -> int:
    """Print one line for each profile; the image's own is marked."""
    if argv[:1] in (["-h"], ["--help"]):
        sys.stdout.write(f"usage: torch-pool profiles\n\n{__doc__}\n")
        return 0
    if argv:
        raise Refusal(f"torch-pool profiles takes no arguments, found {argv[0]!r}", USAGE)
    profiles = [load_compiled(name) for name in profile_names()]
    sys.stdout.write(format_profiles(profiles, baked.PROFILE["name"]))
    return 0


def format_profiles(profiles: "list[Profile]", own: str) -> str:
    """A table; * marks the profile of the image."""
    width = max((len(profile.name) for profile in profiles), default=0)
    return "".join(
        f"{'*' if profile.name == own else ' '} {profile.name:<{width}}  {profile.summary} ({profile.conf})\n"
        for profile in profiles
    )
