"""`make lint`: every checker on everything that is ours, all of them even where one fails."""

import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from torch_pool.refusal import Refusal

from scripts.settings import Settings

Command = tuple[str, ...]


def main(_settings: Settings) -> int:
    """Return 0 where every checker passes.

    Raises:
        Refusal: The files cannot be listed.
    """
    return run_all(plan_lint(read_tracked()))


def plan_lint(tracked: Sequence[Path]) -> tuple[Command, ...]:
    """Return the commands that check these files."""
    dockerfiles = [str(path) for path in tracked if path.name == "Dockerfile"]
    scripts = [str(path) for path in tracked if _is_shell_script(path)]
    return (
        ("ruff", "format", "--check"),
        ("ruff", "check"),
        ("mypy",),
        *([("hadolint", *dockerfiles)] if dockerfiles else []),
        *([("shellcheck", *scripts)] if scripts else []),
    )


def run_all(commands: Sequence[Command]) -> int:
    """Run each command of this virtual environment; what they find is the result, so it goes to stdout."""
    tools = Path(sys.executable).parent
    failed = [command for command in commands if subprocess.call([tools / command[0], *command[1:]])]
    for command in failed:
        print(f"torch-pool: failed: {shlex.join(command)}", file=sys.stderr)
    return 1 if failed else 0


def read_tracked() -> list[Path]:
    """Return the files that git tracks.

    Raises:
        Refusal: This is no git checkout, or git is missing.
    """
    try:
        done = subprocess.run(["git", "ls-files", "-z"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Refusal(f"make lint checks the files that git tracks, and git lists none ({error})") from error
    return [Path(name) for name in done.stdout.split("\0") if name and Path(name).is_file()]


def _is_shell_script(path: Path) -> bool:
    if path.suffix == ".sh":
        return True
    with path.open("rb") as file:
        first = file.readline(80)
    return re.match(rb"#!\s*\S*/(?:env +)?(?:ba|da)?sh\b", first) is not None
