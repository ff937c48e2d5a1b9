from dataclasses import replace

import pytest
from torch_pool.refusal import Refusal

from scripts.settings import resolve_settings
from scripts.tags import content_tag, repository, rolling_tag
from tests.scripts.passing import BASE_FACTS, IMAGE


@pytest.mark.parametrize(
    ("registry", "expected"),
    [
        ("", "torch-pool:infer"),
        ("r.example", "r.example/torch-pool:infer"),
        ("r.example:5000/team/", "r.example:5000/team/torch-pool:infer"),
        ("localhost:5000", "localhost:5000/torch-pool:infer"),
    ],
)
def test_the_rolling_tag_is_the_image_in_the_registry(registry, expected):
    assert rolling_tag(IMAGE, resolve_settings({"REGISTRY": registry}, "")) == expected


@pytest.mark.parametrize(
    "value", ["a b", "https://r.example", "R.example", ";id", "r.example/x:1", "-x", "a//b"]
)
def test_what_is_no_registry_is_refused_with_its_origin(value):
    with pytest.raises(
        Refusal, match=r"^REGISTRY is .* \(from \.env\), but must be a registry such as"
    ) as refusal:
        repository(resolve_settings({}, f"REGISTRY='{value}'"))
    assert refusal.value.status == 64


@pytest.mark.parametrize(
    ("changes", "content"),
    [
        ({}, "torch2.6.0-cu124-py311-debian12"),
        ({"cuda": "11.8", "torch": "2.6.0+cu118"}, "torch2.6.0-cu118-py311-debian12"),
        ({"python": "3.12.8", "distribution": "ubuntu22.04"}, "torch2.6.0-cu124-py312-ubuntu22.04"),
        ({"torch": "2.6.0"}, "torch2.6.0-cu124-py311-debian12"),
    ],
)
def test_the_content_tag_is_what_the_image_holds(changes, content):
    assert content_tag("torch-pool:infer", replace(BASE_FACTS, **changes)) == f"torch-pool:infer-{content}"
