"""Shared libraries: where the dynamic loader will find one, and which version it is, without loading it."""

import os

from torch_pool.record import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

_USUAL = (
    "/usr/lib/wsl/lib",
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu/tegra",
    "/usr/lib64",
    "/lib64",
    "/lib",
    "/usr/lib",
)


class Library(NamedTuple):
    """`version` is what the file name tells, such as 550.54.15 of libcuda.so.550.54.15, or None."""

    path: str
    version: str | None


def find_library(name: str, environ: "Mapping[str, str]", root: str = "/") -> Library | None:
    """The file that the loader takes: on LD_LIBRARY_PATH, else in its cache, else in the usual places."""
    for path in (*_on_library_path(name, environ), *_in_cache(name, root), *_in_usual_places(name)):
        inside = under(root, path)
        if os.path.exists(inside):
            return Library(path, version_of(os.path.realpath(inside)))
    return None


def version_of(path: str) -> str | None:
    """The version after `.so.`; None for a bare ABI number, which tells no release."""
    version = os.path.basename(path).partition(".so.")[2]
    return version if "." in version else None


def library_path(environ: "Mapping[str, str]") -> tuple[str, ...]:
    """The directories of LD_LIBRARY_PATH; to the loader an empty one is the working directory."""
    value = environ.get("LD_LIBRARY_PATH", "")
    return tuple(directory or "." for directory in value.replace(";", ":").split(":")) if value else ()


def parse_cache(cache: bytes, name: str) -> tuple[str, ...]:
    """The paths that /etc/ld.so.cache has for a name; every format of it ends each path with NUL."""
    ending = b"/" + name.encode()
    paths = [text.decode(errors="replace") for text in cache.split(b"\0") if text.endswith(ending)]
    return tuple(path[path.index("/") :] for path in dict.fromkeys(paths))


def under(root: str, path: str) -> str:
    """The path below another root, which a test gives."""
    return path if root == "/" else root.rstrip("/") + os.path.abspath(path)


def _on_library_path(name: str, environ: "Mapping[str, str]") -> tuple[str, ...]:
    return tuple(os.path.join(directory, name) for directory in library_path(environ))


def _in_cache(name: str, root: str) -> tuple[str, ...]:
    try:
        with open(under(root, "/etc/ld.so.cache"), "rb") as file:
            return parse_cache(file.read(), name)
    except OSError:
        return ()


def _in_usual_places(name: str) -> tuple[str, ...]:
    return tuple(os.path.join(directory, name) for directory in _USUAL)
