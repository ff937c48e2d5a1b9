"""`torch-pool run`: what the entrypoint does, by hand or with another profile."""

import sys

from torch_pool.launch import inherited_environment, launch
from torch_pool.record import TYPE_CHECKING
from torch_pool.refusal import USAGE, Refusal

if TYPE_CHECKING:
    from torch_pool.launch import Baked

_USAGE = "usage: torch-pool run [--profile NAME-or-PATH] [--] COMMAND [ARGUMENT...]"


def main(argv: list[str], baked: "Baked") -> int:
    """Become the command. Options end at the first word that is none: the rest is the command's."""
    if argv[:1] in (["-h"], ["--help"]):
        sys.stdout.write(f"{_USAGE}\n\n{__doc__}\n")
        return 0
    profile, command = split_options(argv)
    environ = inherited_environment()
    if profile is not None:
        environ["TORCH_POOL_PROFILE"] = profile
    return launch(command, environ, baked)


def split_options(argv: list[str]) -> tuple[str | None, list[str]]:
    """The profile, if one is named, and the command; raises Refusal with the usage for anything else."""
    profile, rest = None, argv
    while rest and rest[0].startswith("-"):
        option, equals, value = rest[0].partition("=")
        if option == "--":
            rest = rest[1:]
            break
        if option != "--profile" or not (equals or len(rest) > 1):
            raise Refusal(
                f"{rest[0]!r} is not an option of torch-pool run, or lacks its value; {_USAGE}", USAGE
            )
        profile, rest = (value, rest[1:]) if equals else (rest[1], rest[2:])
    if not rest:
        raise Refusal(f"no command was given; {_USAGE}", USAGE)
    return profile, rest
