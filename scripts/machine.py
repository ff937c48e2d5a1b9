"""What this machine's own configuration says about mirrors, indexes, proxies and certificates.

Builds use the same places as the machine's apt and pip do, so none of them is written in the project. A
`parse_` or `choose_` function is pure; a `read_` function asks the machine. URLs may hold credentials: they
are shown only through `Fact.shown` or `redacted`.
"""

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from torch_pool.refusal import UNAVAILABLE, Refusal

from scripts.apt import redacted
from scripts.settings import Setting, shown

SYSTEM_CA = Path("/etc/ssl/certs/ca-certificates.crt")
# moby/buildkit session/secrets/secretsprovider: the most that a build secret can hold.
SECRET_BYTES = 500 * 1024
_KINDS = ("", "-updates", "-security")
_UNKNOWN = "$("


class Fact(NamedTuple):
    name: str
    value: str
    origin: str

    @property
    def shown(self) -> str:
        return f"{self.name} {shown(redacted(self.value))} (from {self.origin})"


class AptSource(NamedTuple):
    uri: str
    suite: str
    components: tuple[str, ...]
    origin: str


class Machine(NamedTuple):
    apt_sources: tuple[AptSource, ...]
    pip_index: Fact | None
    ca_bundle: Fact | None
    proxies: tuple[Fact, ...]
    notes: tuple[str, ...]


def read_machine(ca_bundle: Setting, suite: str, environ: Mapping[str, str]) -> Machine:
    """Gather the facts that a build of Debian `suite` and of Python packages needs.

    Raises:
        Refusal: CA_BUNDLE names no certificate file, or the file is too large for a build secret.
    """
    pip = parse_pip_config(read_output(sys.executable, "-m", "pip", "config", "list"))
    apt_proxy = read_output("apt-config", "dump", "--format", "%v%n", "Acquire::http::Proxy").strip()
    return Machine(
        debian_sources(read_apt_targets(), suite),
        choose_index(pip),
        choose_ca(ca_bundle, environ, pip),
        proxies := choose_proxies(environ, apt_proxy),
        (*local_index_notes(pip), *loopback_notes(proxies)),
    )


def read_output(*command: str) -> str:
    """Return what a command prints; empty where it is not there or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout if done.returncode == 0 else ""


def read_apt_targets() -> str:
    """Return apt's sources as lines of codename|release|component|URI|origin|file."""
    fields = ("CODENAME", "RELEASE", "COMPONENT", "REPO_URI", "ORIGIN", "SOURCESENTRY")
    form = "|".join(f"$({field})" for field in fields)
    command = ("apt-get", "indextargets", "--format", form, "Created-By: Packages")
    # Before the first update apt knows only what the source files say, and has to be asked for that.
    return read_output(*command) or read_output(*command, "--no-release-info")


def debian_sources(targets: str, suite: str) -> tuple[AptSource, ...]:
    """Return the sources of Debian `suite`, its updates and its security fixes, from `read_apt_targets`.

    A mirror that the machine uses for another suite of Debian carries this one too.
    """
    rows = [tuple(line.split("|")) for line in targets.splitlines() if line.count("|") == 5]
    known = [
        AptSource(
            uri, release if codename.startswith(_UNKNOWN) else codename, (component,), entry.split(":")[0]
        )
        for codename, release, component, uri, origin, entry in rows
        if uri.startswith(("http://", "https://")) and (origin == "Debian" or origin.startswith(_UNKNOWN))
    ]
    found = (_source_of_kind(known, suite, kind) for kind in _KINDS)
    return tuple(source for source in found if source)


def _source_of_kind(known: Sequence[AptSource], suite: str, kind: str) -> AptSource | None:
    wanted = suite + kind
    exact = [source for source in known if source.suite == wanted]
    if exact:
        components = tuple(dict.fromkeys(name for source in exact for name in source.components))
        return exact[0]._replace(components=components)
    same_kind = (source for source in known if re.fullmatch(rf"[a-z]+{kind}", source.suite))
    sibling = next((source for source in same_kind if source.components == ("main",)), None)
    return sibling._replace(suite=wanted) if sibling else None


def sources_list(sources: Sequence[AptSource]) -> str:
    """Return the text of a sources.list. It may hold credentials."""
    return "".join(f"deb {item.uri} {item.suite} {' '.join(item.components)}\n" for item in sources)


def parse_pip_config(text: str) -> dict[str, str]:
    """Return the options of `pip config list` that count for an install, by their bare name.

    The environment wins over [install], and that over [global], as in pip.
    """
    found = re.findall(r"^(:env:|install|global)\.([a-z-]+)=(.+)$", text, re.MULTILINE)
    order = ("global", "install", ":env:")
    return {
        name: str(ast.literal_eval(value))
        for _, name, value in sorted(found, key=lambda item: order.index(item[0]))
    }


def choose_index(pip: Mapping[str, str]) -> Fact | None:
    """Return pip's index, where it is one that a container can reach; None means pip's own default."""
    url = pip.get("index-url", "")
    return Fact("index-url", url, "pip config") if url.startswith(("http://", "https://")) else None


def local_index_notes(pip: Mapping[str, str]) -> tuple[str, ...]:
    """Say which places of pip builds do not use: files are not in a container, and one index is enough."""
    usable = choose_index(pip)
    options = ("extra-index-url", "find-links", *(() if usable else ("index-url",)))
    left_out = [f"{name} {redacted(pip[name])}" for name in options if pip.get(name)]
    return (f"builds leave out pip's {', '.join(left_out)}",) if left_out else ()


def choose_ca(setting: Setting, environ: Mapping[str, str], pip: Mapping[str, str]) -> Fact | None:
    """Return the file with the certificates that downloads of a build trust.

    Raises:
        Refusal: CA_BUNDLE names no certificate file, or the file is too large for a build secret.
    """
    if setting.value and not _is_certificates(Path(setting.value)):
        raise Refusal(
            f"CA_BUNDLE is {shown(setting.value)} (from {setting.place}), which is no PEM certificate file"
        )
    given = (
        (setting.value, f"CA_BUNDLE, {setting.place}"),
        *((environ.get(name, ""), name) for name in ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE")),
        (pip.get("cert", ""), "pip config"),
        (str(SYSTEM_CA), "this system"),
    )
    chosen = next(
        (Fact("CA bundle", *row) for row in given if row[0] and _is_certificates(Path(row[0]))), None
    )
    if chosen and Path(chosen.value).stat().st_size > SECRET_BYTES:
        limit = f"a build secret can hold {SECRET_BYTES} bytes"
        raise Refusal(f"{chosen.shown} is too large, as {limit}; name a smaller one in CA_BUNDLE")
    return chosen


def _is_certificates(path: Path) -> bool:
    try:
        return b"-----BEGIN CERTIFICATE-----" in path.read_bytes()
    except OSError:
        return False


def choose_proxies(environ: Mapping[str, str], apt_proxy: str) -> tuple[Fact, ...]:
    """Return HTTP_PROXY, HTTPS_PROXY and NO_PROXY where set; apt's proxy stands in for the first."""
    found = [_proxy(environ, name) for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")]
    if not found[0] and apt_proxy not in {"", "DIRECT"}:
        found[0] = Fact("HTTP_PROXY", apt_proxy, "apt's Acquire::http::Proxy")
    return tuple(fact for fact in found if fact)


def _proxy(environ: Mapping[str, str], name: str) -> Fact | None:
    spelling = next((key for key in (name, name.lower()) if environ.get(key)), None)
    return Fact(name, environ[spelling], f"the shell's {spelling}") if spelling else None


def loopback_notes(proxies: Sequence[Fact]) -> tuple[str, ...]:
    """Point out proxies that only this machine itself can reach."""
    local = re.compile(r"^(?:[a-z]+://)?(?:[^/@]*@)?(?:localhost|127\.[0-9.]+|\[::1\])(?:[:/]|$)")
    return tuple(
        f"{fact.shown} is this machine's loopback address, which a container cannot reach"
        for fact in proxies
        if fact.name != "NO_PROXY" and local.match(fact.value)
    )


def require_disk(path: Path, needed_bytes: int, what: str) -> None:
    """Check the free space of the disk that holds `path`, which need not exist yet.

    Raises:
        Refusal: There is less than `needed_bytes`; says how much is needed and free.
    """
    existing = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    free = shutil.disk_usage(existing).free
    if free < needed_bytes:
        sizes = f"{needed_bytes / 1e9:.1f} GB on the disk of {path}, and {free / 1e9:.1f} GB are free"
        raise Refusal(f"{what} needs {sizes}; make room there and run it again", UNAVAILABLE)
