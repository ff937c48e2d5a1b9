import re
import subprocess
import sys
import venv

import pytest

TORCH, CUDA = "2.6.0+cu124", "12.4"
EXPECTED = f"torch {TORCH} for CUDA {CUDA}"


@pytest.fixture(scope="session")
def python(tmp_path_factory):
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    return folder / "bin" / "python"


@pytest.fixture
def check(image, python):
    """Runs the check in an environment with a torch; returns its status and what it says."""
    (image.root / "opt/torch-pool").mkdir()
    site = next(python.parent.parent.glob("lib/python*/site-packages"))

    def run(*arguments, version=TORCH, cuda=CUDA, copies=("torch-2.6.0",)):
        for path in site.glob("torch*"):
            subprocess.run(["rm", "-r", path], check=True)
        for copy in copies:
            (site / f"{copy}.dist-info").mkdir()
        if version:
            (site / "torch").mkdir()
            (site / "torch/version.py").write_text(f"__version__ = {version!r}\ncuda = {cuda!r}\n")
        program = image.root / "run/bases/check_torch.py"
        done = subprocess.run(
            [python, "-I", program, *arguments], capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout + done.stderr

    return run


def test_the_torch_of_the_table_passes_and_is_written_down(check, image):
    assert check(TORCH, CUDA) == (0, "")
    assert (image.root / "opt/torch-pool/torch.txt").read_text() == f"{EXPECTED}\n"
    assert check() == (0, "")


def test_a_base_outside_the_table_is_taken_at_its_word_once(check):
    assert check(version="2.6.0a0+nv", cuda="12.8") == (0, "")
    assert check(version="2.6.0a0+nv", cuda="12.8") == (0, "")
    assert check() == (1, f"expected torch 2.6.0a0+nv for CUDA 12.8, found {EXPECTED}\n")


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"version": "2.5.1+cu124"}, "torch 2.5.1+cu124 for CUDA 12.4"),
        ({"version": "2.6.0+cu126", "cuda": "12.6"}, "torch 2.6.0+cu126 for CUDA 12.6"),
        ({"version": "2.6.0+cpu", "cuda": None}, "torch 2.6.0+cpu for CUDA None"),
        ({"version": "2.6.0"}, "torch 2.6.0 for CUDA 12.4"),
    ],
)
def test_another_torch_is_told_in_one_line(check, changes, found):
    assert check(TORCH, CUDA, **changes) == (1, f"expected {EXPECTED}, found {found}\n")


def test_packages_that_brought_another_torch_are_found_out(check):
    check(TORCH, CUDA)
    assert check(version="2.7.0") == (1, f"expected {EXPECTED}, found torch 2.7.0 for CUDA 12.4\n")


def test_two_torches_are_one_too_many(check):
    status, text = check(copies=("torch-2.6.0", "torch-2.5.1"))
    assert status == 1
    assert re.fullmatch(r"expected one installed torch in \S+, found 2 torch-\S+ torch-\S+\n", text)


def test_a_base_without_torch_is_told_in_one_line(check):
    status, text = check(version=None, copies=())
    assert status == 1
    assert re.fullmatch(r"expected one installed torch in \S+/site-packages, found 0\n", text)


def test_other_packages_whose_name_begins_with_torch_are_no_torch(check):
    assert check(copies=("torch-2.6.0", "torchvision-0.21.0", "torch_geometric-2.6")) == (0, "")


def test_it_needs_no_import_of_torch(check):
    assert sys.modules.get("torch") is None
    assert check(TORCH, CUDA) == (0, "")
