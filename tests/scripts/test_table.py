from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from torch_pool.refusal import Refusal

from scripts.table import read_table, to_record


@dataclass(frozen=True)
class Record:
    name: str
    words: tuple[str, ...] = ()
    size: int | None = None
    places: Mapping[str, str] | None = None


def test_a_list_becomes_a_tuple_and_what_is_left_out_its_default():
    assert to_record(Record, {"name": "a", "words": ["b", "c"]}, "x") == Record("a", ("b", "c"))
    assert to_record(Record, {"name": "a"}, "x") == Record("a")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "x.yaml: name missing; known: name, places, size, words"),
        (
            {"name": "a", "word": 1, "nmae": 2},
            "x.yaml: nmae, word no known key; known: name, places, size, words",
        ),
    ],
)
def test_a_key_that_is_missing_or_unknown_is_named_with_those_that_are_known(values, message):
    with pytest.raises(Refusal) as refusal:
        to_record(Record, values, "x.yaml")
    assert str(refusal.value) == message


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a: [", "cannot be read: while parsing"),
        (b"\xff", "cannot be read: "),
        (b"", "holds no mapping"),
        (b"- a\n", "holds no mapping"),
        (b"a: 1\nb:\n  c: 1\n  c: 2\n", "cannot be read: the key c is given twice, line 4, column 3"),
        (b"a: &a {c: 1}\nb:\n  <<: *a\n  <<: *a\n", "cannot be read: the key << is given twice"),
        (b"no: 1\n", "cannot be read: a key that is no text"),
        (b"[a]: 1\n", "cannot be read: a key that is no text"),
        (b"a: 2024-13-45\n", "cannot be read: "),
        (b"a: \x00\n", "cannot be read: "),
        (b"[" * 5000, "cannot be read: "),
        (None, "cannot be read: "),
    ],
)
def test_a_file_that_is_no_table_is_refused_in_one_line(tmp_path, content, message):
    path = tmp_path / "x.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(Refusal) as refusal:
        read_table(path)
    assert str(refusal.value).startswith(f"{path} {message}")
    assert "\n" not in str(refusal.value)


def test_a_key_may_stand_in_a_merged_row_and_again_in_its_own(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text("a: &a {c: 1, d: 1}\nb: &b\n  <<: *a\n  c: 2\ne:\n  <<: *b\n  c: 3\n")
    assert read_table(path)["e"] == {"c": 3, "d": 1}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"name": 1.5}, "name is 1.5, but must be text (quote what looks like something else)"),
        ({"name": None}, "name is None, but must be text"),
        ({"name": ["a"]}, "name is ['a'], but must be text"),
        ({"words": "torch"}, "words is 'torch', but must be a list, each item text"),
        ({"words": [1]}, "words is [1], but must be a list, each item text"),
        ({"words": None}, "words is None, but must be a list"),
        ({"size": "abc"}, "size is 'abc', but must be a whole number or null"),
        ({"size": True}, "size is True, but must be a whole number or null"),
        ({"places": []}, "places is [], but must be a mapping"),
        ({"places": {"a": 1}}, "places is {'a': 1}, but must be a mapping, each value text"),
    ],
)
def test_a_value_of_another_type_is_refused_with_its_key(values, message):
    with pytest.raises(Refusal) as refusal:
        to_record(Record, {"name": "a", **values}, "x.yaml")
    assert str(refusal.value).startswith(f"x.yaml: {message}")
