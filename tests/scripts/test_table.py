from dataclasses import dataclass

import pytest
from torch_pool.refusal import Refusal

from scripts.table import read_table, to_record


@dataclass(frozen=True)
class Record:
    name: str
    words: tuple[str, ...] = ()


def test_a_list_becomes_a_tuple_and_what_is_left_out_its_default():
    assert to_record(Record, {"name": "a", "words": ["b", "c"]}, "x") == Record("a", ("b", "c"))
    assert to_record(Record, {"name": "a"}, "x") == Record("a")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "x.yaml: name missing; known: name, words"),
        ({"name": "a", "word": 1, "nmae": 2}, "x.yaml: nmae, word no known key; known: name, words"),
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
