"""A refusal: the one exception that a user ever sees, as one sentence and an exit status."""

USAGE = 64
"""The command line is wrong (sysexits.h EX_USAGE)."""
UNAVAILABLE = 69
"""A GPU is required and none is usable (EX_UNAVAILABLE)."""
CONFIG = 78
"""The configuration is refused (EX_CONFIG)."""


class Refusal(Exception):  # noqa: N818 - a word of the project's vocabulary
    """What happened, the value and where it came from, and what to do; `status` is the exit status."""

    def __init__(self, message: str, status: int = CONFIG) -> None:
        super().__init__(message)
        self.status = status
