import os
import runpy
import subprocess
import sys

import pytest

from scripts.context import lay_out_base, lay_out_image, source_files
from scripts.images import ROOT, load_images

IMAGES = load_images()


@pytest.fixture
def uv(tmp_path, monkeypatch):
    """A uv to copy, and a build folder of our own."""
    monkeypatch.setattr("scripts.context.BUILD", tmp_path / "build")
    path = tmp_path / "uv"
    path.write_text("uv")
    path.chmod(0o755)
    return path


@pytest.fixture(params=[0o077, 0o000])
def umask(request):
    before = os.umask(request.param)
    yield
    os.umask(before)


def modes(folder):
    return {
        (path.is_dir(), path.stat().st_mode & 0o777, path.parent.name == "bin" or path.name == "uv")
        for path in folder.rglob("*")
    }


@pytest.mark.parametrize("image", IMAGES.values(), ids=lambda image: image.name)
def test_the_context_of_an_image_holds_what_its_dockerfile_takes(uv, image):
    folder = lay_out_image(image, uv)
    expected = {"launch", "site", "profile", "bases", "uv"} | (
        {"requirements.txt"} if image.requirements else set()
    )
    assert {path.name for path in folder.iterdir()} == expected
    profiles = {path.stem for path in (ROOT / "entrypoint" / "profiles").glob("*.yaml")}
    compiled = {path.stem for path in (folder / "profile" / "torch_pool" / "compiled").iterdir()}
    assert compiled == profiles
    assert runpy.run_path(str(folder / "profile" / "baked.py"))["PROFILE"]["name"] == image.profile


def test_all_images_share_the_launch_byte_for_byte(uv):
    def launch(image):
        folder = lay_out_image(image, uv) / "launch"
        files = [path for path in folder.rglob("*") if path.is_file()]
        return {str(path.relative_to(folder)): path.read_bytes() for path in files}

    infer, nlp = launch(IMAGES["infer"]), launch(IMAGES["nlp"])
    assert infer == nlp
    assert {"launch.py", "bin/torch-pool", "lib/torch_pool/launch.py"} <= set(infer)


def test_modes_are_the_same_whatever_the_umask(uv, umask):
    assert modes(lay_out_image(IMAGES["nlp"], uv)) == {
        (True, 0o755, False),
        (False, 0o644, False),
        (False, 0o755, True),
    }


def test_the_launch_of_a_context_runs(uv):
    folder = lay_out_image(IMAGES["infer"], uv) / "launch"
    done = subprocess.run(
        [
            sys.executable,
            "-I",
            "-B",
            "-c",
            f"import sys; sys.path.insert(0, '{folder}/lib'); import torch_pool.launch",
        ],
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_context_is_laid_out_anew(uv):
    folder = lay_out_image(IMAGES["infer"], uv)
    (folder / "stray").write_text("")
    (folder / "profile" / "old.py").write_text("")
    again = lay_out_image(IMAGES["infer"], uv)
    assert not (again / "stray").exists()
    assert not (again / "profile" / "old.py").exists()


def test_strays_of_a_checkout_never_reach_a_context(checkout, tmp_path):
    root = checkout.root
    for name in (
        "entrypoint/torch_pool/__pycache__/x.pyc",
        "entrypoint/torch_pool/.x.swp",
        "images/bases/.x",
    ):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("x")
    program = "from pathlib import Path; from scripts import context, images;"
    program += f"uv = Path({str(root / 'Makefile')!r}); context.lay_out_base(uv);"
    program += "context.lay_out_image(images.load_images()['infer'], uv)"
    environ = {"PYTHONPATH": f"{root}:{root}/entrypoint"}
    subprocess.run([sys.executable, "-B", "-c", program], cwd=root, env=environ, check=True)
    laid_out = list((root / "build" / "context").rglob("*"))
    assert any(path.name == "launch.py" for path in laid_out)
    strays = [
        path for path in laid_out if path.name.startswith((".", "__pycache__")) or path.suffix == ".pyc"
    ]
    assert strays == []


def test_the_context_of_the_bases_is_what_counts_as_their_inputs(uv):
    folder = lay_out_base(uv)
    assert {path.name for path in folder.iterdir()} == {"bases", "uv"}
    inputs = source_files(ROOT / "images" / "bases")
    laid_out = [path for path in (folder / "bases").rglob("*") if path.is_file()]
    assert sorted(path.relative_to(folder / "bases") for path in laid_out) == [
        path.relative_to(ROOT / "images" / "bases") for path in inputs
    ]


def test_uv_stays_as_it_was_for_buildkit_not_to_send_it_again(uv):
    copy = lay_out_base(uv) / "uv"
    assert (copy.stat().st_mtime_ns, copy.read_text()) == (uv.stat().st_mtime_ns, "uv")
