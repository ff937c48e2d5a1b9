"""Settings: the few documented names, each with its value and the place that the value came from.

make's command line > the shell > `.env` > default. An empty value means the default, so that
`BASE= make build` undoes what `.env` says. The Makefile passes NAME of the command line as
TORCH_POOL_CLI_NAME, because make itself would expand it.
"""

import difflib
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple, TextIO

from torch_pool.refusal import USAGE, Refusal

CLI_PREFIX = "TORCH_POOL_CLI_"


class Name(NamedTuple):
    name: str
    default: str
    help: str
    choices: tuple[str, ...] = ()


NAMES = (
    Name("PROFILE", "", "the image to build: make list shows the names"),
    Name("BASE", "auto", "the base: auto, a name from the bases table, or any image reference"),
    Name("REGISTRY", "", "put before the names of our images: registry.example.com/team"),
    Name("BASE_REGISTRY", "", "a mirror of the registry that the bases come from"),
    Name("PLATFORM", "linux/amd64", "the platform to build for"),
    Name(
        "ENGINE",
        "auto",
        "auto installs or starts a Docker engine where there is none; none never does",
        ("auto", "none"),
    ),
    Name("CA_BUNDLE", "", "certificates (PEM file) for the build's downloads; empty: the machine's own"),
    Name("DRY_RUN", "0", "1 shows what would be done and does nothing", ("0", "1")),
    Name("NO_CACHE", "0", "1 builds every layer anew", ("0", "1")),
)


class Setting(NamedTuple):
    name: str
    value: str
    origin: str
    note: str = ""

    @property
    def place(self) -> str:
        """The origin inside a sentence."""
        return _in(self.origin)


class Settings(NamedTuple):
    """One field for each row of NAMES, in that order."""

    profile: Setting
    base: Setting
    registry: Setting
    base_registry: Setting
    platform: Setting
    engine: Setting
    ca_bundle: Setting
    dry_run: Setting
    no_cache: Setting


def load_settings(environ: Mapping[str, str], folder: Path) -> Settings:
    """Resolve the settings of this process; `folder` may hold a `.env`."""
    return resolve_settings(environ, read_env_file(folder / ".env"))


def read_env_file(path: Path) -> str:
    """Return the text of `.env`, empty where there is none.

    Raises:
        Refusal: It is there and cannot be read as text.
    """
    try:
        return path.read_text("utf-8-sig")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise Refusal(f"{path} cannot be read as text ({error}); repair or remove it") from error


def resolve_settings(environ: Mapping[str, str], env_file_text: str) -> Settings:
    """Find the value and the origin of every name.

    Raises:
        Refusal: An unknown name on the command line or in `.env`, or a value that is no choice.
    """
    cli = {
        name.removeprefix(CLI_PREFIX): value for name, value in environ.items() if name.startswith(CLI_PREFIX)
    }
    for name in cli:
        _check_name(name, "the command line")
    env_file = parse_env_file(env_file_text)
    return Settings(*(_resolve(row, cli, environ, env_file) for row in NAMES))


def _resolve(
    row: Name, cli: Mapping[str, str], shell: Mapping[str, str], env_file: Mapping[str, str]
) -> Setting:
    places = {"command line": cli, "shell": shell, ".env": env_file}
    origin = next((place for place, values in places.items() if row.name in values), "default")
    value = places.get(origin, {}).get(row.name, "")
    hidden = env_file.get(row.name) if origin == "shell" else None
    note = f"overrides {shown(hidden)} in .env" if hidden not in (None, value) else ""
    if not value and origin != "default":
        origin = f"default, as it is empty in {_in(origin)}"
    setting = Setting(row.name, value or row.default, origin, note)
    _check_choice(setting, row.choices)
    return setting


def _in(origin: str) -> str:
    return origin if origin == ".env" else f"the {origin}"


def _check_choice(setting: Setting, choices: tuple[str, ...]) -> None:
    if choices and setting.value not in choices:
        wanted = " or ".join(choices)
        message = f"{setting.name} is {shown(setting.value)} (from {setting.place}), but must be {wanted}"
        raise Refusal(message, USAGE)


def _check_name(name: str, place: str) -> None:
    known = [row.name for row in NAMES]
    if name not in known:
        raise Refusal(f"{place} sets {shown(name)}, which is no setting{nearest(name, known)}", USAGE)


_ASSIGNMENT = re.compile(r"(?P<name>[^=\s]+)\s*=\s*(?P<value>.*)")
_VALUE = re.compile(
    r"""(?:"(?P<double>[^"]*)"|'(?P<single>[^']*)'|(?P<bare>[^"'#](?:[^#]|(?<!\s)\#)*)?)\s*(?:\#.*)?"""
)


def parse_env_file(text: str) -> dict[str, str]:
    """NAME=VALUE lines, `#` comments, optional matching quotes; nothing is expanded.

    Raises:
        Refusal: A line of another form or with a NUL byte, an unknown name, or a name set twice.
    """
    values: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if "\0" in line:
            raise Refusal(f".env line {number} holds a NUL byte; save the file as plain UTF-8 text")
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, value = _parse_assignment(line.strip(), number)
        _check_name(name, f".env line {number}")
        if name in values:
            raise Refusal(f".env line {number} sets {name} again; keep one of the two lines")
        values[name] = value
    return values


def _parse_assignment(line: str, number: int) -> tuple[str, str]:
    assignment = _ASSIGNMENT.fullmatch(line)
    if not assignment:
        raise Refusal(f".env line {number} is {shown(line)}, but must be NAME=VALUE or a # comment")
    value = _VALUE.fullmatch(assignment["value"])
    if not value:
        raise Refusal(f".env line {number} has a quote that does not match: {shown(line)}")
    return assignment["name"], value["double"] or value["single"] or (value["bare"] or "").rstrip()


def choose_profile(setting: Setting, known: Collection[str]) -> str:
    """Return the name of the image to build.

    Raises:
        Refusal: There is no such image; one line with the names that exist.
    """
    if setting.value in known:
        return setting.value
    names = ", ".join(sorted(known))
    if not setting.value:
        raise Refusal(f"PROFILE is not set; say for example PROFILE={min(known)}. Known: {names}", USAGE)
    message = f"PROFILE is {shown(setting.value)} (from {setting.place}), which is no image"
    raise Refusal(message + nearest(setting.value, sorted(known)), USAGE)


def nearest(name: str, known: Collection[str]) -> str:
    """Return the end of a sentence that refuses `name`: what may have been meant, and all that is known."""
    close = difflib.get_close_matches(name, known, 1)
    meant = f"; did you mean {close[0]}?" if close else "."
    return f"{meant} Known: {', '.join(known)}"


def shown(value: str) -> str:
    """Return `value` on one line, quoted where its bounds or characters would be unclear."""
    plain = value.isprintable() and value and not set(value) & set(" '\"\\")
    return value if plain else repr(value)


def print_settings(settings: Settings, out: TextIO) -> None:
    """Show every value and its origin, one a line."""
    for setting in settings:
        note = f", {setting.note}" if setting.note else ""
        print(f"{setting.name:<14} {shown(setting.value):<20} {setting.origin}{note}", file=out)
