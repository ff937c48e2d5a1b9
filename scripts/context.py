"""Build contexts: folders under build/ that hold exactly what a Dockerfile copies, with fixed modes.

Laid out anew for each build, so that modes, `__pycache__` and other strays of a checkout never reach a layer.
"""

import shutil
from pathlib import Path

from torch_pool.profile import compile_profile, load_profile

from scripts.images import ROOT, Image
from scripts.render import load_image_profile

BUILD = ROOT / "build"
_STRAYS = shutil.ignore_patterns("__pycache__", "*.pyc", ".*", "*.md")


def lay_out_base(uv: Path) -> Path:
    """The context of images/bases/Dockerfile."""
    folder = _empty(BUILD / "context" / "bases")
    _copy(ROOT / "images" / "bases", folder / "bases")
    shutil.copy2(uv, folder / "uv")
    _open_folders(folder)
    return folder


def lay_out_image(image: Image, uv: Path) -> Path:
    """The context of an image's Dockerfile: launch, site, profile, bases, uv, and its locked requirements.

    Raises:
        Refusal: a profile is wrong; with file and line.
    """
    folder = _empty(BUILD / "context" / image.name)
    lay_out_launch(folder / "launch")
    _copy(ROOT / "entrypoint" / "site", folder / "site")
    lay_out_profiles(folder / "profile", image)
    _copy(ROOT / "images" / "bases", folder / "bases")
    shutil.copy2(uv, folder / "uv")
    if image.requirements:
        text = (ROOT / "images" / image.name / image.requirements).read_text("utf-8")
        _write(folder / image.requirements, text)
    _open_folders(folder)
    return folder


def lay_out_launch(folder: Path) -> None:
    """What all images share under /opt/torch-pool: the package, the launcher, the command."""
    entrypoint = ROOT / "entrypoint"
    _copy(entrypoint / "torch_pool", folder / "lib" / "torch_pool")
    _write(folder / "launch.py", (entrypoint / "launch.py").read_text("utf-8"))
    for path in sorted((entrypoint / "bin").iterdir()):
        _write(folder / "bin" / path.name, path.read_text("utf-8"), mode=0o755)


def lay_out_profiles(folder: Path, image: Image) -> None:
    """The image's own profile as `baked`, and every shipped one for TORCH_POOL_PROFILE, all compiled.

    Apart from the package, so that an edited profile is a layer of some 60 KiB.

    Raises:
        Refusal: a profile is wrong; with file and line.
    """
    _write(folder / "baked.py", compile_profile(load_image_profile(image)))
    compiled = folder / "torch_pool" / "compiled"
    for path in sorted((ROOT / "entrypoint" / "profiles").glob("*.yaml")):
        profile = load_profile(str(path), str(path.parent))
        _write(compiled / f"{path.stem}.py", compile_profile(profile))


def source_files(folder: Path) -> list[Path]:
    """The files of a folder that a context takes, in the order of their paths."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return sorted(path for path in files if not _STRAYS("", list(path.relative_to(folder).parts)))


def _empty(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def _copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target, ignore=_STRAYS, copy_function=shutil.copyfile)
    for path in target.rglob("*"):
        if path.is_file():
            path.chmod(0o644)


def _write(path: Path, text: str, *, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    path.chmod(mode)


def _open_folders(folder: Path) -> None:
    """Whatever the umask: other users of an image must get in, and two machines must make the same layer."""
    for path in [folder, *folder.rglob("*")]:
        if path.is_dir():
            path.chmod(0o755)
