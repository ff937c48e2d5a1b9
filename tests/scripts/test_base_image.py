import re
from dataclasses import replace

import pytest
from torch_pool.refusal import Refusal

from scripts.base_image import INPUTS_LABEL, base_arguments, base_inputs, base_tag, choose_base, needed_bytes
from scripts.bases import Base, load_table
from scripts.builder import Builder
from scripts.engine import Engine
from scripts.inputs import Inputs
from scripts.machine import Machine
from scripts.settings import resolve_settings
from tests.scripts.standin import client_with

TABLE = load_table()
DEFAULT = TABLE.bases["cuda12.4-runtime"]
WHEELS = TABLE.bases["wheels"]
OURS = {INPUTS_LABEL: "0"}
REFUSES = "sys.exit('ERROR: failed to resolve: dial tcp: lookup r.example: no such host')"


@pytest.fixture
def builder():
    """A builder whose engine knows some images, with their labels."""

    def make(known, **environ):
        settings = resolve_settings(environ, "")
        machine = Machine((), None, None, (), ())
        return Builder(
            settings, Engine("docker", "0.13", ""), client_with(known), TABLE, machine, Inputs((), {})
        )

    return make


@pytest.mark.parametrize(
    ("known", "base", "expected"),
    [
        ({"torch-pool-base:wheels": OURS}, "auto", "wheels"),
        ({"torch-pool-base:cuda12.4-runtime": OURS}, "auto", "cuda12.4-runtime"),
        ({DEFAULT.reference: {}}, "auto", "cuda12.4-runtime"),
        ({DEFAULT.reference: {}, "torch-pool-base:wheels": OURS}, "auto", "cuda12.4-runtime"),
        ({DEFAULT.reference: {}, "torch-pool-base:wheels": OURS}, "wheels", "wheels"),
        ({"mybase:1": {}}, "mybase:1", "mybase-1"),
    ],
)
def test_what_is_in_the_engine_is_taken_and_no_registry_is_asked(program, builder, known, base, expected):
    docker = program("docker", REFUSES)
    found, reason = choose_base(builder(known, BASE=base))
    assert (found.name, reason, docker.calls) == (expected, "which this engine holds", [])


def test_an_image_that_only_has_the_name_is_not_taken_for_our_base(program, builder):
    program("docker", REFUSES)
    found, reason = choose_base(builder({"torch-pool-base:wheels": {}}, BASE="wheels"))
    assert (found.name, reason) == ("wheels", "built here")


@pytest.mark.parametrize(
    ("mirror", "asked"), [("", DEFAULT.reference), ("m.example", f"m.example/{DEFAULT.reference[10:]}")]
)
def test_then_a_registry_is_asked(program, builder, mirror, asked):
    docker = program("docker")
    found, reason = choose_base(builder({}, BASE_REGISTRY=mirror))
    assert (found.name, reason) == ("cuda12.4-runtime", f"from its registry as {asked}")
    assert [call.arguments for call in docker.calls] == [["buildx", "imagetools", "inspect", asked]]


def test_then_the_wheels_are_built_and_the_reason_is_told(program, builder):
    program("docker", REFUSES)
    found, reason = choose_base(builder({}))
    assert found.name == "wheels"
    assert reason == (
        f"built here, because of {DEFAULT.reference}: a registry, mirror or index cannot be reached"
    )


def test_wheels_by_name_ask_no_registry(program, builder):
    docker = program("docker", REFUSES)
    assert choose_base(builder({}, BASE="wheels")) == (WHEELS, "built here")
    assert docker.calls == []


@pytest.mark.parametrize("base", ["cuda11.8-devel", "r.example/a/b:11.2"])
def test_a_base_by_name_is_had_or_refused(program, builder, base):
    program("docker", "sys.exit('ERROR: r.example/a/b:11.2: not found')")
    with pytest.raises(Refusal) as refusal:
        choose_base(builder({}, BASE=base))
    text = str(refusal.value)
    assert "cannot be had: something that the build names does not exist there" in text
    assert f"BASE={base} from the shell" in text
    assert "2.6.0-cuda12.4-cudnn9-runtime" in text


def test_an_unknown_name_asks_nobody(program, builder):
    docker = program("docker")
    with pytest.raises(Refusal, match=r"^BASE is wheel .*did you mean wheels\?"):
        choose_base(builder({}, BASE="wheel"))
    assert docker.calls == []


@pytest.mark.parametrize("row", TABLE.bases.values(), ids=lambda row: row.name)
def test_the_tag_of_a_base_is_its_name(row):
    assert base_tag(row) == f"torch-pool-base:{row.name}"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "wheels").mkdir()
    (tmp_path / "Dockerfile").write_text("FROM x\n")
    (tmp_path / "wheels" / "prune.py").write_text("print()\n")
    return tmp_path


def test_the_inputs_stay_the_same_for_what_no_context_takes(folder):
    before = base_inputs(WHEELS, TABLE.rootfs, folder)
    (folder / "wheels" / "__pycache__").mkdir()
    for name in ("wheels/__pycache__/prune.pyc", ".Dockerfile.swp", "README.md", "wheels/.hidden"):
        (folder / name).write_text("x")
    (folder / "Dockerfile").touch()
    assert base_inputs(WHEELS, TABLE.rootfs, folder) == before
    assert re.fullmatch("[0-9a-f]{64}", before)


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "Dockerfile").write_text("FROM y\n"),
        lambda folder: (folder / "Dockerfile").rename(folder / "Dockerfile2"),
        lambda folder: (folder / "wheels" / "prune.py").unlink(),
        lambda folder: (folder / "wheels" / "new.sh").write_text(""),
    ],
)
def test_the_inputs_change_with_every_file(folder, change):
    before = base_inputs(WHEELS, TABLE.rootfs, folder)
    change(folder)
    assert base_inputs(WHEELS, TABLE.rootfs, folder) != before


def test_the_inputs_change_with_the_row_and_the_root_file_system(folder):
    trixie = {**TABLE.rootfs, "suite": "trixie"}
    pinned = replace(DEFAULT, digest="sha256:" + "0" * 64)
    digests = {
        base_inputs(base, rootfs, folder)
        for base in (WHEELS, DEFAULT, pinned)
        for rootfs in (TABLE.rootfs, trixie)
    }
    # A base from a registry has no root file system of ours.
    assert len(digests) == 4


@pytest.mark.parametrize(
    ("base", "start"),
    [
        (WHEELS, "wheels"),
        (DEFAULT, DEFAULT.reference),
        (replace(DEFAULT, digest="sha256:" + "0" * 64), f"{DEFAULT.reference}@sha256:{'0' * 64}"),
        (Base("mybase-1", "registry", "mybase:1"), "mybase:1"),
    ],
)
def test_a_base_is_built_from_its_reference_or_the_stage_of_that_name(base, start):
    arguments = base_arguments(base, "/usr/bin/python3", "12ab")
    assert arguments == [
        f"--build-arg=START={start}",
        "--build-arg=PYTHON=/usr/bin/python3",
        f"--build-arg=TORCH={base.torch}",
        f"--build-arg=CUDA={base.cuda}",
        "--label=io.torch-pool.base.inputs=12ab",
    ]


@pytest.mark.parametrize(
    ("name", "local", "gigabytes"),
    [
        ("wheels", False, 20),
        ("cuda12.4-runtime", False, 18),
        ("cuda12.4-devel", False, 40),
        ("cuda12.4-devel", True, 2),
    ],
)
def test_a_base_asks_for_the_disk_that_its_making_takes(name, local, gigabytes):
    assert needed_bytes(TABLE.bases[name], local=local) == gigabytes * 10**9


def test_a_base_outside_the_table_asks_for_the_most():
    assert needed_bytes(Base("mine", "registry", "mine:1"), local=False) == 25 * 10**9
