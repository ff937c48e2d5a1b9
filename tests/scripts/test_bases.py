import re

import pytest
from torch_pool.refusal import Refusal

from scripts.bases import (
    REGISTRY,
    TABLE,
    WHEELS,
    Base,
    candidates,
    load_table,
    missing_tag,
    require_cuda,
)
from scripts.settings import Setting

BASES = load_table()
NO_MIRROR = Setting("BASE_REGISTRY", "", "default")
DIGEST = "sha256:" + "0a" * 32
ROW = "kind: registry, reference: r.example/x:1"
ROOTFS = "rootfs: {reference: r.example/debian:1, suite: bookworm}"


def base(value, origin="command line"):
    return Setting("BASE", value, origin)


def row(keys):
    return f"default: a\n{ROOTFS}\nbases: {{a: {{{keys}}}}}\n"


def references(value, mirror=""):
    found = candidates(base(value), BASES, Setting("BASE_REGISTRY", mirror, ".env"))
    return [row.pinned for row in found]


def version(text):
    return tuple(int(part) for part in text.split("."))


def table(tmp_path, text):
    path = tmp_path / "bases.yaml"
    path.write_text(text)
    return path


def test_the_table_has_the_six_official_images_and_the_wheels():
    tags = {row.reference for row in BASES.bases.values() if row.kind == REGISTRY}
    assert tags == {
        f"docker.io/pytorch/pytorch:2.6.0-cuda{cuda}-cudnn9-{kind}"
        for cuda in ("11.8", "12.4", "12.6")
        for kind in ("runtime", "devel")
    }
    assert BASES.default == "cuda12.4-runtime"
    assert BASES.bases["wheels"].kind == WHEELS


@pytest.mark.parametrize("row", BASES.bases.values(), ids=lambda row: row.name)
def test_a_row_is_consistent_with_itself(row):
    assert row.torch == f"2.6.0+cu{row.cuda.replace('.', '')}"
    assert f"cuda{row.cuda}" in (row.reference or f"cuda{row.cuda}")
    assert row.name == "wheels" or row.name == re.sub(r".*-(cuda.*)-cudnn9(-.*)", r"\1\2", row.reference)
    assert row.python_path.startswith("/")


@pytest.mark.parametrize("row", BASES.bases.values(), ids=lambda row: row.name)
def test_no_row_demands_more_of_the_driver_than_its_cuda_needs(row):
    demanded = re.fullmatch(r"cuda>=(\d+\.\d+)", row.require_cuda)
    assert demanded
    assert version(demanded[1]) <= version(row.cuda)
    assert version(demanded[1])[0] == version(row.cuda)[0]
    # NVIDIA's table of minor-version compatibility; 11.4 came with driver 470.
    assert row.driver_floor == {"11.4": 470, "12.0": 525}[demanded[1]]


@pytest.mark.parametrize("cuda", ["11.4", "11.8", "12.0", "12.4", "12.6", "13.0"])
def test_a_base_outside_the_table_demands_no_more_than_its_cuda(cuda):
    demanded = require_cuda(cuda).removeprefix("cuda>=")
    assert version(demanded) <= version(cuda)
    assert version(demanded)[0] == version(cuda)[0]


def test_every_registry_row_has_its_own_reference_and_digest():
    # Read as lines: YAML's merge would hide a row that inherits another one's digest.
    rows = re.findall(r"(?m)^  (\S+):.*\n((?:    .*\n)+)", TABLE.read_text().partition("\nbases:\n")[2])
    assert [name for name, _ in rows] == list(BASES.bases)
    for name, lines in rows:
        if BASES.bases[name].kind == REGISTRY:
            assert re.search(r"(?m)^    reference: \S+\n    digest: ", lines), name


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("auto", ["docker.io/pytorch/pytorch:2.6.0-cuda12.4-cudnn9-runtime", ""]),
        ("wheels", [""]),
        ("cuda11.8-devel", ["docker.io/pytorch/pytorch:2.6.0-cuda11.8-cudnn9-devel"]),
        ("mybase:1", ["mybase:1"]),
        ("mybase:1.2-x", ["mybase:1.2-x"]),
        ("team/base", ["team/base"]),
        ("team/base:2.6", ["team/base:2.6"]),
        ("localhost:5000/base", ["localhost:5000/base"]),
        ("registry.example:5000/team/base:2.6", ["registry.example:5000/team/base:2.6"]),
        (f"registry.example:5000/a/b/c:1@{DIGEST}", [f"registry.example:5000/a/b/c:1@{DIGEST}"]),
        (f"base@{DIGEST}", [f"base@{DIGEST}"]),
        (f"base:1@{DIGEST}", [f"base:1@{DIGEST}"]),
    ],
)
def test_base_is_a_row_or_any_reference(value, expected):
    assert references(value) == expected


@pytest.mark.parametrize(
    "value",
    [
        "wheel",
        "cuda12.4",
        "a b",
        "../x",
        ";id",
        "$(id)",
        "x:",
        ":1",
        "x/y:z/w",
        "x@sha256:12",
        f"x@md5:{'0' * 32}",
        "Team/base:1",
        "x:1\n",
        "https://registry.example/x:1",
        "--help",
        "x:" + "1" * 129,
    ],
)
def test_anything_else_is_refused_in_one_line_with_the_names(value):
    with pytest.raises(Refusal, match=r"^BASE is .* \(from the command line\), no base and no r") as refusal:
        candidates(base(value), BASES, NO_MIRROR)
    assert refusal.value.status == 64
    assert str(refusal.value).endswith(f"Known: auto, {', '.join(BASES.bases)}")
    assert "\n" not in str(refusal.value)


def test_a_misspelt_base_is_told_what_was_meant():
    with pytest.raises(Refusal, match=r"did you mean wheels\?"):
        candidates(base("wheel"), BASES, NO_MIRROR)


@pytest.mark.parametrize(
    ("mirror", "value", "expected"),
    [
        ("m.example", "cuda11.8-runtime", "m.example/pytorch/pytorch:2.6.0-cuda11.8-cudnn9-runtime"),
        ("m.example:5000/hub/", "registry.example:5000/a/b:1", "m.example:5000/hub/a/b:1"),
        ("m.example", "localhost/a:1", "m.example/a:1"),
        ("m.example", "localhost:5000/a:1", "m.example/a:1"),
        ("m.example", "team/base:1", "m.example/team/base:1"),
        ("m.example", "mybase:1", "m.example/mybase:1"),
        ("m.example", f"r.example/a:1@{DIGEST}", f"m.example/a:1@{DIGEST}"),
        ("", "r.example/a:1", "r.example/a:1"),
        ("/", "r.example/a:1", "r.example/a:1"),
    ],
)
def test_a_mirror_takes_the_place_of_the_registry(mirror, value, expected):
    assert references(value, mirror) == [expected]


def test_a_mirror_leaves_the_wheels_alone():
    assert references("wheels", "m.example") == [""]


@pytest.mark.parametrize("mirror", ["https://m.example", "a b", "M.example", ";id", "m.example/x:1"])
def test_a_mirror_that_is_no_registry_is_refused(mirror):
    with pytest.raises(Refusal, match=r"^BASE_REGISTRY is .* \(from \.env\), but must be a registry"):
        references("auto", mirror)


def test_the_name_of_any_reference_can_be_a_tag():
    (found,) = candidates(
        base("registry.example:5000/" + "team/" * 40 + f"base:X_1@{DIGEST}"), BASES, NO_MIRROR
    )
    assert re.fullmatch(r"[a-z0-9][a-z0-9.-]{0,127}", found.name)


def test_a_base_that_cannot_be_had_is_named_with_where_each_part_came_from():
    row = BASES.bases["cuda12.4-runtime"]
    text = str(missing_tag(row, base("auto", "default"), BASES, "the registry did not answer"))
    assert row.reference in text
    assert "the registry did not answer" in text
    assert "row cuda12.4-runtime of images/bases.yaml" in text
    assert "BASE=auto from the default" in text
    for known in BASES.bases.values():
        assert known.reference.rpartition("/")[2] in text
    assert "\n" not in text


def test_a_reference_that_cannot_be_had_came_from_base():
    text = str(
        missing_tag(Base("x", REGISTRY, "r.example/x:11.2"), base("r.example/x:11.2", ".env"), BASES, "no")
    )
    assert "r.example/x:11.2 cannot be had" in text
    assert "reference from BASE, BASE=r.example/x:11.2 from .env" in text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("default: a\nbases: {}\n", "bases.yaml: rootfs missing"),
        ("default: a\nrootfs: {}\nbases: {}\nbasis: {}\n", "bases.yaml: basis no known key"),
        (
            f"default: a\n{ROOTFS}\nbases: {{wheels: {{kind: wheels}}}}\n",
            "names the base a, but has no such row",
        ),
        (
            row(ROW),
            "names the base wheels, but has no such row",
        ),
        ("default: a\nrootfs: {}\nbases: {a: }\n", "row a holds no mapping"),
        ("default: a\nrootfs:\nbases: {}\n", "bases.yaml: rootfs is None, but must be a mapping"),
        ("default: a\nrootfs: {suite: x}\nbases: {}\n", "bases.yaml: rootfs must have the keys reference"),
        (f"default: a\n{ROOTFS}\nbases: []\n", "bases.yaml: bases is [], but must be a mapping"),
        (f"default: 1\n{ROOTFS}\nbases: {{}}\n", "bases.yaml: default is 1, but must be text"),
        (f"default: a\ndefault: b\n{ROOTFS}\nbases: {{}}\n", "the key default is given twice"),
        (row("kind: wheel"), "bases.yaml, row a: kind is wheel, but must be registry or wheels"),
        (row("kind: registry"), "row a: '', of reference and digest, is no image reference"),
        (row(f"{ROW}, digest: sha256:1"), "row a: r.example/x:1@sha256:1, of reference and digest"),
        (row(f"{ROW}, cuda: 12.4"), "row a: cuda is 12.4, but must be text"),
        (row(f"{ROW}, torch: null"), "row a: torch is None, but must be text"),
        (row(f"{ROW}, budget_mb: 0"), "row a: budget_mb is 0, but must be 1 or more"),
        (
            row(f"{ROW}, driver_floor: '525'"),
            "row a: driver_floor is '525', but must be a whole number or nul",
        ),
        (row(f"{ROW}, platforms: linux/amd64"), "row a: platforms is 'linux/amd64', but must be a list"),
        (row(ROW).replace("{a:", "{A b:"), "row A b: the name becomes a tag"),
        ("default: a\nrootfs: {}\nbases: {a: {reference: x}}\n", "row a: kind missing"),
        ("default: a\nrootfs: {}\nbases: {a: {kind: registry, tourch: 2}}\n", "row a: tourch no known key"),
        ("[]", "holds no mapping"),
        ("a: [", "cannot be read"),
    ],
)
def test_a_wrong_table_is_refused_with_the_place(tmp_path, text, message):
    with pytest.raises(Refusal, match=re.escape(message)):
        load_table(table(tmp_path, text))
