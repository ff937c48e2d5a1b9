"""What a failed build's output means, in one sentence: what happened and what to do."""

import re

from scripts.apt import redacted

# The first that matches wins: causes before their consequences.
_CAUSES = (
    (
        r"no space left on device",
        "the disk is full; `docker system df` shows what the engine holds, `make clean` frees our part",
    ),
    (
        r"certificate verif|CERTIFICATE_VERIFY_FAILED|x509: |UnknownIssuer|invalid peer certificate",
        "a server's certificate is not trusted; name the CA bundle of this network with CA_BUNDLE=/path.pem",
    ),
    (
        r"hash mismatch",
        "a package is not the one that the lock names; the index serves something else under that version",
    ),
    (
        # Not the "Permission denied: " of a program in the build.
        r"unauthorized|40[13] +forbidden|(?<!permission )denied: |status code 40[13]",
        "a registry or index refuses; log in to it (docker login) or check its address and credentials",
    ),
    (
        r"404 +not found|manifest unknown|no solution found|not found in the package registry",
        "something that the build names does not exist there",
    ),
    (
        (
            r"no such host|failure in name resolution|failure resolving|could not resolve|dns error"
            r"|server misbehaving|unreachable|connection re(?:fused|set)|timed out|i/o timeout"
            r"|handshake timeout|deadline exceeded|failed to fetch"
        ),
        "a registry, mirror or index cannot be reached; check the network and the proxy of this machine",
    ),
    (r": not found", "something that the build names does not exist there"),
)
# What a terminal is told about colours and the cursor.
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_OWN = re.compile(r"(expected (?:torch|one installed torch)[^\n]*)")


def diagnose(output: str) -> str:
    """The likely cause of a failure from what the build printed; never empty."""
    text = _CONTROL.sub("", output).replace("\r", "\n")
    own = _OWN.search(text)
    if own:
        return f"the base is not what the table says: {own[1].strip()}; correct images/bases.yaml or BASE"
    for pattern, meaning in _CAUSES:
        match = re.search(pattern, text, re.IGNORECASE)
        if match:
            return f"{meaning} ({_line(text, match.start())})"
    last = text.rstrip()
    return f"it ended with: {_line(last, len(last))}" if last else "it said nothing"


def _line(text: str, position: int) -> str:
    line = text[text.rfind("\n", 0, position) + 1 :].partition("\n")[0]
    # BuildKit's step number and clock say nothing in a summary.
    return redacted(re.sub(r"^(?:#\d+ )?(?:\d+\.\d+ )?", "", line.strip()))[:200]
