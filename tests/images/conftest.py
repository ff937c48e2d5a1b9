import pytest

from tests.images.moved import Image


@pytest.fixture
def image(tmp_path):
    return Image(tmp_path / "image")
