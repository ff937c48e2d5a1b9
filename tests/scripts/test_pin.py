import re

import pytest
import yaml
from torch_pool.refusal import Refusal

from scripts import pin
from scripts.bases import TABLE, load_table
from scripts.engine import Engine
from scripts.pin import read_digest, set_digest
from scripts.settings import resolve_settings

DIGEST = "sha256:" + "0a" * 32
OTHER = "sha256:" + "1b" * 32
TEXT = """\
# A comment.
bases:
  first: &first
    kind: registry
    # Why this one.
    reference: r.example/x:1
    digest: null
    torch: 2.6.0
  second:
    <<: *first
    reference: r.example/x:2
    torch: 2.6.0 # the same
  last:
    reference: r.example/x:3
    digest: sha256:old"""
ROWS = [row.name for row in load_table().bases.values() if row.reference]


def changed(text, name):
    before, after = TEXT.splitlines(), set_digest(text, name, DIGEST).splitlines()
    return [line for line in before if line not in after], [line for line in after if line not in before]


@pytest.mark.parametrize(
    ("name", "removed"),
    [("first", ["    digest: null"]), ("second", []), ("last", ["    digest: sha256:old"])],
)
def test_a_digest_is_written_under_its_reference_and_all_else_stays(name, removed):
    assert changed(TEXT + "\n", name) == (removed, [f"    digest: {DIGEST}"])
    rows = yaml.safe_load(set_digest(TEXT + "\n", name, DIGEST))["bases"]
    assert rows[name]["digest"] == DIGEST


def test_the_last_line_needs_no_line_end():
    rows = yaml.safe_load(set_digest(TEXT, "last", DIGEST))["bases"]
    assert rows["last"]["digest"] == DIGEST


def test_a_row_that_is_not_there_is_refused():
    with pytest.raises(Refusal, match=r"^bases\.yaml has no row firs$"):
        set_digest(TEXT, "firs", DIGEST)


@pytest.mark.parametrize("name", ROWS)
def test_a_pin_of_one_row_changes_no_other(tmp_path, name):
    path = tmp_path / "bases.yaml"
    path.write_text(set_digest(TABLE.read_text(), name, DIGEST))
    before, after = load_table().bases, load_table(path).bases
    assert after[name].pinned == f"{before[name].reference}@{DIGEST}"
    assert {row for row in after if after[row] != before[row]} == {name}
    assert re.findall(r"#.*", path.read_text()) == re.findall(r"#.*", TABLE.read_text())


def test_a_pin_can_be_moved():
    once = set_digest(TEXT, "first", OTHER)
    assert set_digest(once, "first", DIGEST) == set_digest(TEXT, "first", DIGEST)


def test_the_digest_is_asked_of_the_registry_by_buildx(program):
    docker = program("docker", f"print('{DIGEST}')")
    assert read_digest("r.example/x:1") == DIGEST
    (call,) = docker.calls
    assert call.arguments == [
        *("buildx", "imagetools", "inspect", "r.example/x:1", "--format", "{{.Manifest.Digest}}")
    ]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("sys.exit('ERROR: r.example/x:1: not found')", "does not exist there"),
        ("sys.exit('ERROR: 401 Unauthorized')", "a registry or index refuses"),
        ("print('<no value>')", "it said nothing"),
        ("print('sha256:12')", "it said nothing"),
    ],
)
def test_what_is_no_digest_pins_nothing(program, answer, reason):
    program("docker", answer)
    with pytest.raises(Refusal, match=r"^no digest for r\.example/x:1, so nothing is pinned: ") as refusal:
        read_digest("r.example/x:1")
    assert reason in str(refusal.value)
    assert refusal.value.status == 69


@pytest.fixture
def table(tmp_path, monkeypatch):
    """A copy of the table, and an engine that answers."""
    path = tmp_path / "bases.yaml"
    path.write_text(TABLE.read_text())
    monkeypatch.setattr(pin, "TABLE", path)
    monkeypatch.setattr(pin, "ensure_engine", lambda _: Engine("docker", "0.13", ""))
    return path


def test_every_row_is_pinned_through_the_mirror(program, table):
    docker = program("docker", f"print('{DIGEST}')")
    assert pin.main(resolve_settings({"BASE_REGISTRY": "m.example"}, "")) == 0
    rows = load_table(table).bases
    assert {name for name, row in rows.items() if row.digest == DIGEST} == set(ROWS)
    assert all(row.reference.startswith("docker.io/") for row in rows.values() if row.reference)
    assert {call.arguments[3].partition("/")[0] for call in docker.calls} == {"m.example"}


def test_one_row_is_pinned_by_its_name(program, table):
    program("docker", f"print('{DIGEST}')")
    pin.main(resolve_settings({"BASE": "cuda12.4-devel"}, ""))
    assert [name for name, row in load_table(table).bases.items() if row.digest] == ["cuda12.4-devel"]


def test_a_row_that_cannot_be_had_leaves_the_table_as_it_was(program, table):
    program("docker", f"sys.exit('ERROR: not found') if '12.6' in sys.argv[4] else print('{DIGEST}')")
    with pytest.raises(Refusal, match="nothing is pinned"):
        pin.main(resolve_settings({}, ""))
    assert table.read_text() == TABLE.read_text()


@pytest.mark.parametrize("base", ["wheels", "r.example/x:1"])
def test_what_is_no_row_of_a_registry_cannot_be_pinned(program, table, base):
    docker = program("docker")
    with pytest.raises(Refusal, match=f"^BASE={base} is no row of"):
        pin.main(resolve_settings({"BASE": base}, ""))
    assert docker.calls == []


def test_a_dry_run_asks_no_registry_and_writes_nothing(program, table, capsys):
    docker = program("docker")
    settings = resolve_settings({"DRY_RUN": "1", "BASE": "cuda12.4-devel", "BASE_REGISTRY": "m.example"}, "")
    assert pin.main(settings) == 0
    assert capsys.readouterr().err == (
        "would write the digest of m.example/pytorch/pytorch:2.6.0-cuda12.4-cudnn9-devel into bases.yaml\n"
    )
    assert docker.calls == []
    assert table.read_text() == TABLE.read_text()
