"""`python -m scripts COMMAND`: what the Makefile calls. Settings come by environment, never as arguments."""

import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from torch_pool.refusal import USAGE, Refusal

from scripts.failure import explain
from scripts.settings import load_settings

COMMANDS = {
    "build": "scripts.build",
    "build-all": "scripts.build_all",
    "list": "scripts.listing",
    "render": "scripts.render",
    "test": "scripts.test",
    "lint": "scripts.lint",
    "selftest": "scripts.selftest",
    "shell": "scripts.shell",
    "pin": "scripts.pin",
    "lock": "scripts.relock",
    "size": "scripts.size",
    "clean": "scripts.clean",
    "bench-build": "scripts.bench_build",
    "bench-launch": "scripts.bench_launch",
}


def main(arguments: Sequence[str]) -> int:
    """Run one command and return its exit status: 64 for a wrong call, 130 after Ctrl-C.

    A failure of the machine is one line too; an error of this program keeps its traceback.
    """
    try:
        return _run(arguments)
    except Refusal as refusal:
        print(f"torch-pool: {refusal}", file=sys.stderr)
        return refusal.status
    except KeyboardInterrupt:
        print("torch-pool: interrupted; the same command goes on where this one stopped", file=sys.stderr)
        return 130
    except Exception as error:
        failure = explain(error)
        if not failure:
            raise
        print(f"torch-pool: {failure[0]}", file=sys.stderr)
        return failure[1]


def _run(arguments: Sequence[str]) -> int:
    if len(arguments) != 1 or arguments[0] not in COMMANDS:
        raise Refusal(f"one command is needed: {', '.join(COMMANDS)}", USAGE)
    settings = load_settings(os.environ, Path())
    # A command's own libraries are loaded only when it is the one that runs.
    status: int = importlib.import_module(COMMANDS[arguments[0]]).main(settings)
    return status


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
