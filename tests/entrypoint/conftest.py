import os

import pytest

from tests.entrypoint.image_tree import lay_out


@pytest.fixture(scope="session")
def image(tmp_path_factory):
    """An infer image."""
    return lay_out(tmp_path_factory.mktemp("image") / "torch-pool")


@pytest.fixture
def env(tmp_path):
    """The environment of a container of the image: what its ENV sets, and nothing else."""
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    return {
        "PATH": os.defpath,
        "HOME": str(home),
        "PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync",
    }
