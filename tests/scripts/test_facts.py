import json

import pytest
from torch_pool.refusal import Refusal

from scripts.facts import parse_facts
from tests.scripts.passing import BASE_FACTS

PRINTED = json.dumps(vars(BASE_FACTS))


def test_what_the_probe_prints_is_read_back():
    assert parse_facts(PRINTED) == BASE_FACTS
    assert parse_facts(f"{PRINTED}\n") == BASE_FACTS


@pytest.mark.parametrize("text", ["", f"== a banner ==\n{PRINTED}", "torch 2.6.0", "[]", "1"])
def test_an_image_that_prints_something_else_is_refused_in_one_line(text):
    with pytest.raises(Refusal, match=r"^the image prints more than its command does: ") as refusal:
        parse_facts(text)
    assert refusal.value.status == 1
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [({"torch": None}, "the probe's output: torch missing"), ({"tourch": ""}, "tourch no known key")],
)
def test_facts_that_are_missing_or_unknown_are_named(change, message):
    values = {key: value for key, value in {**vars(BASE_FACTS), **change}.items() if value is not None}
    with pytest.raises(Refusal, match=message):
        parse_facts(json.dumps(values))
