"""The command torch-pool: one thin module for each subcommand, imported when it is chosen."""

import sys

import torch_pool
from torch_pool.launch import restore_signals
from torch_pool.refusal import USAGE, Refusal
from torch_pool.suggestion import suggest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from torch_pool.launch import Baked

COMMANDS = {
    "run": "start a command under the profile, or another one with --profile",
    "show": "every value that a launch sets, its source and the reason",
    "profiles": "the profiles of this image and what each is for",
    "check": "would torch take this PYTORCH_CUDA_ALLOC_CONF, and what would it do",
    "doctor": "describe driver, GPUs, memory, user and caches, with what to do",
    "selftest": "prove that allocator and devices are really what a launch sets",
}
LATER = ("monitor", "bench", "tune", "advise")
"""Commands that this version does not have."""
_BOUND_TO_THE_IMAGE = ("run", "show", "profiles", "selftest")
"""They are given the image's own profile; the others find what they need themselves."""


def main(argv: list[str], baked: "Baked") -> int:
    """Run a subcommand. `docker run IMAGE --help` comes here as well."""
    restore_signals()
    try:
        return _dispatch(argv, baked)
    except Refusal as refusal:
        sys.stderr.write(f"torch-pool: {refusal}\n")
        return refusal.status
    except SystemExit as stop:
        # argparse has spoken: it ends after --help with 0, after a wrong command line with 2.
        return USAGE if stop.code else 0


def _dispatch(argv: list[str], baked: "Baked") -> int:
    if not argv:
        sys.stderr.write(usage())
        return USAGE
    if argv[0] in ("-h", "--help", "help"):
        sys.stdout.write(usage())
        return 0
    if argv[0] == "--version":
        sys.stdout.write(f"torch-pool {torch_pool.VERSION} (profile {baked.PROFILE['name']})\n")
        return 0
    if argv[0] in LATER:
        what = f"torch-pool {argv[0]} is not in this version ({torch_pool.VERSION})"
        raise Refusal(f"{what}; see torch-pool --help for what is", USAGE)
    if argv[0] not in COMMANDS:
        raise Refusal(f"{argv[0]!r} is not a command of torch-pool; {suggest(argv[0], COMMANDS)}", USAGE)
    module = __import__(f"torch_pool.{argv[0]}", fromlist=["main"])
    status: int = module.main(argv[1:], baked) if argv[0] in _BOUND_TO_THE_IMAGE else module.main(argv[1:])
    return status


def usage() -> str:
    """The text of --help."""
    lines = [f"  {name:<10}{purpose}" for name, purpose in COMMANDS.items()]
    return "\n".join(
        [
            "usage: torch-pool COMMAND [OPTION...]",
            "",
            *lines,
            "",
            "The image starts any other command under its profile:",
            "docker run IMAGE python train.py",
            "",
        ]
    )
