"""`make render`: one Dockerfile for each image from Dockerfile.j2, its image.yaml and its profile."""

import os
import sys
import tempfile
from pathlib import Path

import jinja2
from torch_pool.profile import Profile, load_profile
from torch_pool.refusal import Refusal

from scripts.images import ROOT, Image, load_images
from scripts.settings import Settings

TEMPLATE = "Dockerfile.j2"


def main(settings: Settings) -> int:
    """Writes images/*/Dockerfile and says which changed; a dry run only says it."""
    for image in load_images().values():
        path, text = dockerfile_path(image), render(image, load_image_profile(image))
        if settings.dry_run.value == "1":
            same = path.exists() and path.read_bytes() == text.encode()
            outcome = "unchanged" if same else "would be written"
        else:
            outcome = "written" if write_if_changed(path, text) else "unchanged"
        print(f"{path.relative_to(ROOT)}: {outcome}", file=sys.stderr)
    return 0


def dockerfile_path(image: Image, root: Path = ROOT) -> Path:
    return root / "images" / image.name / "Dockerfile"


def load_image_profile(image: Image, root: Path = ROOT) -> Profile:
    """The profile of an image.

    Raises:
        Refusal: the profile is missing or wrong, with file and line.
    """
    folder = root / "entrypoint" / "profiles"
    return load_profile(str(folder / f"{image.profile}.yaml"), str(folder))


def render(image: Image, profile: Profile, template: Path = ROOT / TEMPLATE) -> str:
    """The text of an image's Dockerfile; nothing is written.

    Raises:
        Refusal: a variable is undefined, the template is wrong, or a value could start another instruction.
    """
    environment = jinja2.Environment(
        autoescape=False,  # noqa: S701 -- a Dockerfile is no HTML; plain_value is its guard
        finalize=plain_value,
        keep_trailing_newline=True,
        trim_blocks=True,
        loader=jinja2.FileSystemLoader(template.parent),
        undefined=jinja2.StrictUndefined,
    )
    try:
        return environment.get_template(template.name).render(image=image, profile=profile)
    except jinja2.TemplateSyntaxError as error:
        raise Refusal(f"{template.name}:{error.lineno}: {error.message}") from error
    except jinja2.TemplateNotFound as error:
        raise Refusal(f"the template {error.name} cannot be read") from error
    except UnicodeDecodeError as error:
        raise Refusal(f"{template.name} is no UTF-8 text: byte {error.start}") from error
    except Exception as error:  # whatever an expression of the template raises is the template's mistake
        line = template_line(error, template)
        reason = error if isinstance(error, jinja2.UndefinedError | UnsafeValueError) else repr(error)
        raise Refusal(f"{template.name}:{line}: {reason} (image {image.name})") from error


class UnsafeValueError(ValueError):
    """A value that could end its quotes, or begin an expansion or another instruction."""


def plain_value(value: object) -> object:
    """Lets a value through only if it stays the text that it is between double quotes in a Dockerfile.

    Raises:
        UnsafeValueError: it holds a line break, quote, `$`, backtick or backslash, or is no text.
    """
    if isinstance(value, jinja2.Undefined):
        return value
    if not isinstance(value, str | int) or isinstance(value, bool):
        raise UnsafeValueError(f"{value!r} is no text, so a Dockerfile cannot hold it")
    unsafe = sorted({letter for letter in str(value) if letter in "\"'`$\\" or not letter.isprintable()})
    if unsafe:
        raise UnsafeValueError(
            f"{value!r} holds {' '.join(map(repr, unsafe))}, which a Dockerfile would not take as text"
        )
    return value


def template_line(error: BaseException, template: Path) -> int:
    """The line of the template in which an error arose; Jinja maps its code back to template lines."""
    lines = [1]
    trace = error.__traceback__
    while trace:
        if trace.tb_frame.f_code.co_filename == str(template):
            lines.append(trace.tb_lineno)
        trace = trace.tb_next
    return lines[-1]


def write_if_changed(path: Path, text: str) -> bool:
    """Replaces the file in one step, so that a failure leaves the old one, and only that.

    Raises:
        Refusal: it cannot be written.
    """
    data = text.encode()
    if path.exists() and path.read_bytes() == data:
        return False
    try:
        _replace(path, data)
    except OSError as error:
        raise Refusal(f"{path} cannot be written ({error.strerror}); it is left as it was") from error
    return True


def _replace(path: Path, data: bytes) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        temporary.chmod(0o644)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
