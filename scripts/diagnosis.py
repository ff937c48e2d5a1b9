"""What a failed build's output means, in one sentence: what happened and what to do."""

import re

# The first that matches wins: causes before their consequences.
_CAUSES = (
    (
        r"no space left on device",
        "the disk is full; `docker system df` shows what the engine holds, `make clean` frees our part",
    ),
    (
        r"(?i)certificate verif|CERTIFICATE_VERIFY_FAILED|x509: |UnknownIssuer|invalid peer certificate",
        "a server's certificate is not trusted; name the CA bundle of this network with CA_BUNDLE=/path.pem",
    ),
    (
        r"(?i)hash mismatch|hashes are required",
        "a package is not the one that the lock names; the index serves something else under that version",
    ),
    (
        r"(?i)unauthorized|40[13] forbidden|denied: |status code 40[13]",
        "a registry or index refuses; log in to it (docker login) or check its address and credentials",
    ),
    (
        (
            r"(?i)no such host|failure in name resolution|could not resolve|dns error|unreachable"
            r"|connection re(?:fused|set)|i/o timeout|timed out|failed to fetch"
        ),
        "a registry, mirror or index cannot be reached; check the network and the proxy of this machine",
    ),
    (
        r"No solution found|not found in the package registry|manifest unknown|: not found",
        "something that the build names does not exist there",
    ),
)
_OWN = re.compile(r"(expected (?:torch|one installed torch)[^\n]*)")


def diagnose(output: str) -> str:
    """The likely cause of a failure from what the build printed; never empty."""
    own = _OWN.search(output)
    if own:
        return f"the base is not what the table says: {own[1].strip()}; correct images/bases.yaml or BASE"
    for pattern, meaning in _CAUSES:
        match = re.search(pattern, output)
        if match:
            return f"{meaning} ({_line(output, match.start())})"
    return "the failing step is shown above"


def _line(output: str, position: int) -> str:
    start = output.rfind("\n", 0, position) + 1
    end = output.find("\n", position)
    line = output[start : end if end != -1 else len(output)]
    # BuildKit's step number and clock say nothing in a summary.
    return re.sub(r"^#?\d+ (?:[\d.]+ )?", "", line.strip())[:200]
