"""Where a variable came from: the user, the image's own ENV, or an earlier launch.

A conf equal to the baked one counts as the image's: nothing tells an image's ENV from a user's -e. What a
launch sets it writes down, so that a launch in a launch starts from the user's words again; a value that was
changed in between is the user's.
"""

from torch_pool.launch import CONF, LAUNCHED
from torch_pool.record import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

CONTAINER = "pid-1"
"""In the record of a launch that ran hooks or locked GPUs: this_container(). No variable has such a name."""


class Earlier(NamedTuple):
    """What an earlier launch set, and from which profile; `profile` is None when there was none."""

    profile: str | None
    made: "Mapping[str, str]"


def parse_record(text: str) -> Earlier:
    """The inverse of launch.record; a text that no launch wrote counts as no launch."""
    profile, *pairs = text.split(" ")
    if not profile or not all("=" in pair for pair in pairs):
        return Earlier(None, {})
    return Earlier(profile, {name: _unescape(value) for name, _, value in (p.partition("=") for p in pairs)})


def read_earlier(environ: "Mapping[str, str]") -> Earlier:
    """What an earlier launch set, as far as it still stands."""
    earlier = parse_record(environ.get(LAUNCHED, ""))
    return earlier._replace(
        made={name: value for name, value in earlier.made.items() if environ.get(name) == value}
    )


def this_container() -> str:
    """When process 1 started, in clock ticks since boot: another container has another, as has a restart."""
    try:
        with open("/proc/1/stat", "rb") as file:
            # Field 22 of proc(5), counted from behind the name, which may hold anything.
            return file.read().rpartition(b")")[2].split()[19].decode()
    except OSError:
        return ""


def is_of_this_container(environ: "Mapping[str, str]") -> bool:
    """Whether a launch in this container left the record; one that was given with -e is none."""
    container = parse_record(environ.get(LAUNCHED, "")).made.get(CONTAINER)
    return bool(container) and container == this_container()


def given_by_user(environ: "Mapping[str, str]", baked_conf: str) -> dict[str, str]:
    """The environment without what the image or an earlier launch set."""
    made = {**read_earlier(environ).made, LAUNCHED: environ.get(LAUNCHED)}
    given = {name: value for name, value in environ.items() if name not in made}
    if given.get(CONF) == baked_conf:
        del given[CONF]
    return given


def _unescape(value: str) -> str:
    return value.replace("%0A", "\n").replace("+", " ").replace("%2B", "+").replace("%25", "%")
