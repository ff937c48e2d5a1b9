"""The README says what is there: settings, targets, images, and pages that it links to."""

import re

import pytest

from scripts.images import ROOT, load_images
from scripts.settings import NAMES

README = (ROOT / "README.md").read_text("utf-8")
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")


def test_every_setting_stands_in_the_readme_with_its_default():
    table = dict(re.findall(r"(?m)^\| `([A-Z_]+)` \| (?:`([^`]*)`)? ?\|", README))
    assert table == {row.name: row.default for row in NAMES}


def test_every_image_stands_in_the_readme():
    assert set(re.findall(r"(?m)^\| `([a-z-]+)` \|", README)) == set(load_images())


def test_every_make_target_that_the_readme_names_exists():
    named = set(re.findall(r"`make ([a-z-]+)", README)) | set(re.findall(r"(?m)^make ([a-z-]+)", README))
    assert named <= set(re.findall(r"(?m)^([a-z-]+):", MAKEFILE))


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))], ids=lambda p: p.name
)
def test_links_to_files_lead_somewhere(page):
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text("utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []
