from pathlib import Path

import pytest
from torch_pool.refusal import Refusal
from torch_pool.strict_yaml import MAX_BYTES, parse_file, parse_text


def values(text):
    return {key: entry.value for key, entry in parse_text(text, "p.yaml").items()}


def refusal(text):
    with pytest.raises(Refusal) as caught:
        parse_text(text, "p.yaml")
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: cudaMallocAsync", "cudaMallocAsync"),
        ("a: 20GiB", "20GiB"),
        ("a: y", "y"),
        ("a: none", "none"),
        ('a: "0512"', "0512"),
        ("a: 'no'", "no"),
        ('a: ""', ""),
        ("a: 512", 512),
        ("a: 0", 0),
        ("a: -1", -1),
        ("a: 0.5", 0.5),
        ("a: true", True),
        ("a: False", False),
        ("a: null", None),
        ("\ufeffa: b", "b"),
    ],
)
def test_a_value_that_looks_like_what_it_is_is_taken(text, value):
    assert values(text) == {"a": value}


@pytest.mark.parametrize(
    ("text", "explanation"),
    [
        ("0512", '0512 is 330 in YAML 1.1; write 512, or "0512" in quotes for the text'),
        ("010", '010 is 8 in YAML 1.1; write 10, or "010" in quotes for the text'),
        ("08", "08 is the text '08' in YAML 1.1, not a number; write 8, or \"08\" in quotes for the text"),
        ("09400", "09400 is the text '09400' in YAML 1.1, not a number; write 9400"),
        ("1:30", '1:30 is 90 in YAML 1.1; write 90, or "1:30" in quotes for the text'),
        ("12:30:45", "12:30:45 is 45045 in YAML 1.1"),
        ("1_000", '1_000 is 1000 in YAML 1.1; write 1000, or "1_000" in quotes for the text'),
        ("0x200", "0x200 is 512 in YAML 1.1; write 512"),
        ("0b11", "0b11 is 3 in YAML 1.1; write 3"),
        ("+5", "+5 is 5 in YAML 1.1; write 5"),
        ("1e-4", "1e-4 is the text '1e-4' in YAML 1.1, not a number; write 0.0001"),
        (".5", ".5 is 0.5 in YAML 1.1; write 0.5"),
        ("1.10", '1.10 is 1.1 in YAML 1.1; write 1.1, or "1.10" in quotes for the text'),
        (".inf", ".inf is inf in YAML 1.1"),
        ("no", 'no is false in YAML 1.1; write false, or "no" in quotes for the word'),
        ("On", 'On is true in YAML 1.1; write true, or "On" in quotes for the word'),
        ("~", "~ is null in YAML 1.1; write null"),
        ("", "the value is empty; write null, or remove the line"),
        ("2026-01-31", '2026-01-31 is a timestamp in YAML 1.1; write "2026-01-31" in quotes for the text'),
        ("=", '= is a value in YAML 1.1; write "=" in quotes for the text'),
    ],
)
def test_a_scalar_that_yaml_reads_differently_is_refused_with_both_readings(text, explanation):
    assert refusal(f"# first\nany_key: {text}").startswith(f"p.yaml:2: {explanation}")


@pytest.mark.parametrize("place", ["a: [1, {text}]", "a: {{b: {text}}}", "{text}: 1"])
def test_traps_are_found_in_lists_in_mappings_and_in_keys(place):
    assert "NO is false in YAML 1.1" in refusal(place.format(text="NO"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3", "p.yaml:3: 'a' is given twice (first at p.yaml:1); keep one of them"),
        ("a:\n\tb: 1", "indent with spaces, not tabs"),
        ("a: b\nc:d", "p.yaml:2: cannot read 'c:d': could not find expected ':'; a space is missing"),
        (
            "backend:cudaMallocAsync",
            "a space is missing after the colon, write 'backend: cudaMallocAsync'",
        ),
        ("a: {b:c}", "p.yaml:1: 'b:c' is not a key; a space is missing after the colon, write 'b: c'"),
        ("a: &x [*x]", "p.yaml:1: anchors and aliases ('x') are not allowed; repeat the value"),
        ("a: !!python/name:os.system x", "are not allowed; write the plain value"),
        ("<<: {a: b}", "<< is a merge in YAML 1.1"),
        ("a: 1\n---\nb: 1", "p.yaml:2: cannot read '---': but found another document"),
        ("- a", "p.yaml:1: a profile is lines of 'key: value', not 'a list'"),
        ("5: a", "p.yaml:1: '5' is not a key"),
        ("? {a: b}\n: c", "p.yaml:1: 'a mapping' is not a key"),
        ("", "p.yaml: is empty"),
        ("# only a comment", "p.yaml: is empty"),
        ("a: \x00", "p.yaml: is not YAML"),
        ("a: " + "[" * 5000 + "]" * 5000, "p.yaml: is nested too deeply"),
    ],
)
def test_a_document_that_is_not_a_plain_mapping_is_refused_in_one_line(text, message):
    found = refusal(text)
    assert message in found
    assert "\n" not in found


def test_an_entry_knows_its_source_text_and_its_line():
    entry = parse_text("a: 1\nb:\n  c: 0.5\n", "p.yaml")["b"].value["c"]
    assert (entry.value, entry.text, entry.place) == (0.5, "0.5", "p.yaml:3")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (Path.exists, "cannot be read (No such file or directory)"),
        (lambda path: path.mkdir(), "is not a file"),
        (lambda path: path.write_bytes(b"a: \xff"), "is not UTF-8 text (byte 3)"),
        (lambda path: path.write_text("#" * (MAX_BYTES + 1)), "is larger than 64 KiB"),
    ],
    ids=["missing", "directory", "binary", "large"],
)
def test_a_path_that_is_no_readable_text_file_is_refused(tmp_path, make, message):
    path = tmp_path / "p.yaml"
    make(path)
    with pytest.raises(Refusal) as caught:
        parse_file(str(path))
    assert str(caught.value).startswith(f"{path}: {message}")


def test_a_device_is_refused_without_waiting_for_it():
    with pytest.raises(Refusal, match="/dev/zero: is not a file"):
        parse_file("/dev/zero")
