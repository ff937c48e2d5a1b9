import re

import pytest
from torch_pool.refusal import Refusal

from scripts.images import ROOT, Image, load_images, read_image

IMAGES = load_images()
INFER = "title: a\ndescription: b\nprofile: infer\nbudget_mb: 1\n"


def test_there_is_an_image_for_each_kind_of_workload():
    assert list(IMAGES) == ["infer", "llm-finetune", "nlp", "shared", "train"]


@pytest.mark.parametrize("image", IMAGES.values(), ids=lambda image: image.name)
def test_an_image_has_a_profile_that_is_there(image):
    assert (ROOT / "entrypoint" / "profiles" / f"{image.profile}.yaml").is_file()


@pytest.mark.parametrize("image", IMAGES.values(), ids=lambda image: image.name)
def test_the_packages_that_an_image_promises_are_in_its_lock(image):
    lock = ROOT / "images" / image.name / "requirements.txt"
    assert bool(image.requirements) == lock.exists() == bool(image.imports)
    locked = set(re.findall(r"^([a-z0-9-]+)==", lock.read_text() if lock.exists() else "", re.MULTILINE))
    assert set(image.imports) <= locked


@pytest.mark.parametrize("image", IMAGES.values(), ids=lambda image: image.name)
def test_an_image_without_packages_adds_at_most_a_megabyte(image):
    assert image.requirements or image.budget_mb == 1


def test_a_lock_beside_an_image_belongs_to_it(tmp_path):
    path = tmp_path / "infer" / "image.yaml"
    path.parent.mkdir()
    path.write_text(INFER)
    assert read_image(path) == Image("infer", "a", "b", "infer", 1)
    (path.parent / "requirements.txt").write_text("")
    assert read_image(path) == Image("infer", "a", "b", "infer", 1, (), "requirements.txt")


def test_a_checkout_without_images_is_refused(tmp_path):
    with pytest.raises(Refusal, match=r"holds no image\.yaml; is this a whole checkout"):
        load_images(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (INFER.replace("title", "titel"), "titel no known key"),
        (INFER.replace("title: a\n", ""), "title missing"),
        (INFER + "name: other\n", "name is what the folder says"),
        (INFER + "requirements: ../x\n", "requirements is what the folder says"),
        (INFER.replace("budget_mb: 1", "budget_mb: abc"), "budget_mb is 'abc', but must be a whole number"),
        (INFER.replace("budget_mb: 1", "budget_mb: true"), "budget_mb is True, but must be a whole number"),
        (INFER.replace("budget_mb: 1", "budget_mb: -1"), "budget_mb is -1, but must be 1 or more"),
        (INFER.replace("title: a", "title:"), "title is None, but must be text"),
        (INFER.replace("title: a", "title: ''"), "title is empty"),
        (INFER.replace("description: b", "description: 2.6"), "description is 2.6, but must be text"),
        (INFER + "imports: torch\n", "imports is 'torch', but must be a list"),
        (INFER + "imports: [a b]\n", "imports has 'a b', which Python cannot import"),
        (
            INFER.replace("profile: infer", "profile: ../x"),
            "profile is ../x, but must be a name of entrypoint",
        ),
    ],
)
def test_a_wrong_image_is_refused_with_its_file(tmp_path, text, message):
    path = tmp_path / "images" / "infer" / "image.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(Refusal, match=f"^{re.escape(str(path))}: {message}"):
        load_images(tmp_path)


@pytest.mark.parametrize("name", ["In fer", "Infer", "-x", "a" * 61, "é"])
def test_a_folder_whose_name_is_no_part_of_a_tag_is_refused(tmp_path, name):
    path = tmp_path / "images" / name / "image.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(INFER)
    with pytest.raises(Refusal, match=f"^{re.escape(str(path))}: the folder's name becomes a tag"):
        load_images(tmp_path)


def test_a_key_that_is_given_twice_is_refused_with_its_file(tmp_path):
    path = tmp_path / "images" / "infer" / "image.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(INFER + "budget_mb: 2\n")
    with pytest.raises(Refusal, match=f"^{re.escape(str(path))} .*the key budget_mb is given twice"):
        load_images(tmp_path)
