"""Images that users derive: `FROM torch-pool:infer`."""

import subprocess
from pathlib import Path

import pytest

from scripts.builder import open_builder
from scripts.settings import load_settings

pytestmark = pytest.mark.image

INSTALL = """FROM torch-pool:infer
USER 0
RUN --mount=type=secret,id=ca --mount=type=secret,id=index \\
    if [ -s /run/secrets/ca ]; then export PIP_CERT=/run/secrets/ca; fi; \\
    if [ -s /run/secrets/index ]; then PIP_INDEX_URL=$(cat /run/secrets/index); export PIP_INDEX_URL; fi; \\
    pip install -c /opt/torch-pool/constraints.txt {package}
USER 1000:0
"""


@pytest.fixture
def derive(client, tmp_path: Path):
    """Builds a derived image from a Dockerfile's text; returns the finished process and the tag."""
    builder = open_builder(load_settings({}, tmp_path))
    tags: list[str] = []

    def derive(name: str, text: str) -> tuple[subprocess.CompletedProcess[str], str]:
        (tmp_path / "Dockerfile").write_text(text)
        tag = f"torch-pool-test:{name}"
        tags.append(tag)
        command = [
            "docker",
            "buildx",
            "build",
            "--provenance=false",
            *builder.inputs.arguments,
            "-t",
            tag,
            str(tmp_path),
        ]
        done = subprocess.run(
            command, env=dict(builder.inputs.environ), capture_output=True, text=True, check=False
        )
        return done, tag

    yield derive
    for tag in tags:
        subprocess.run(["docker", "image", "rm", "-f", tag], capture_output=True, check=False)


def test_a_derived_image_installs_a_package_and_keeps_torch(derive, run):
    done, tag = derive("package", INSTALL.format(package="einops"))
    assert done.returncode == 0, done.stderr
    program = "import einops, torch; print(torch.__version__, torch.cuda.get_allocator_backend())"
    assert run(tag, "python", "-c", program).stdout == "2.6.0+cu124 cudaMallocAsync\n"


@pytest.mark.parametrize("package", ["torch==2.7.0", "torchvision==0.22.0"])
def test_a_derived_image_cannot_replace_torch_by_accident(package, derive):
    done, _ = derive("replaced", INSTALL.format(package=package))
    assert done.returncode != 0
    assert "constraint" in done.stderr


OTHER_TORCH = """
import zipfile
with zipfile.ZipFile("/tmp/torch-2.6.0+cu118-py3-none-any.whl", "w") as wheel:
    info = "torch-2.6.0+cu118.dist-info"
    wheel.writestr("torch/other.py", "")
    wheel.writestr(info + "/METADATA", "Metadata-Version: 2.1\\nName: torch\\nVersion: 2.6.0+cu118\\n")
    wheel.writestr(info + "/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
    wheel.writestr(info + "/RECORD", "")
"""
REPLACE = "pip install --no-index --find-links /tmp --no-deps -U -c /opt/torch-pool/constraints.txt torch"


def test_the_constraints_do_not_take_the_same_version_for_another_cuda(run):
    script = f"python -c '{OTHER_TORCH}' && {REPLACE} && python -c 'import torch; print(torch.__version__)'"
    ended = run("infer", "sh", "-c", script, user="0", expects=["WARNING: Running pip as the 'root' user"])
    assert ended.stdout.splitlines()[-1] == "2.6.0+cu124"
    assert "Successfully installed" not in ended.stdout


def test_the_run_lines_of_a_derived_image_have_dockers_own_shell(client):
    assert client.images.get("torch-pool:infer").attrs["Config"].get("Shell") in (None, ["/bin/sh", "-c"])


def test_a_derived_image_with_its_own_command_runs_it_under_the_profile(derive, run):
    done, tag = derive(
        "command", 'FROM torch-pool:train\nCMD ["sh", "-c", "echo $PYTORCH_CUDA_ALLOC_CONF"]\n'
    )
    assert done.returncode == 0, done.stderr
    assert run(tag).stdout == "backend:cudaMallocAsync\n"
