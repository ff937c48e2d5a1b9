"""References: how an image may be called (the grammar of distribution/reference, regexp.go)."""

import re

from torch_pool.refusal import USAGE, Refusal

from scripts.settings import Setting, shown

_WORD = r"[a-z0-9]+(?:[._-]+[a-z0-9]+)*"
REGISTRY = re.compile(rf"{_WORD}(?::[0-9]+)?(?:/{_WORD})*")
# A colon before the last slash begins a port, one behind it a tag.
REFERENCE = re.compile(
    rf"(?P<path>{_WORD}(?::[0-9]+(?=/))?(?:/{_WORD})*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)


def choose_registry(setting: Setting) -> str:
    """A registry's host with an optional port and path, without a slash at its end; empty where none is set.

    Raises:
        Refusal: the value is something else, such as a URL.
    """
    registry = setting.value.rstrip("/")
    if registry and not REGISTRY.fullmatch(registry):
        raise Refusal(
            f"{setting.name} is {shown(setting.value)} (from {setting.place}), but must be a registry "
            "such as registry.example.com:5000/team, in lower case and without https://",
            USAGE,
        )
    return registry
