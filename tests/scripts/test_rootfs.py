import hashlib
import json
import re
import subprocess
import tarfile

import pytest
from torch_pool.refusal import Refusal

from scripts.machine import AptSource
from scripts.rootfs import layout_digest, make_rootfs, write_layout
from scripts.settings import resolve_settings

SOURCES = (
    AptSource("https://u:secret@m.example/debian/", "bookworm", ("main",), "x"),
    AptSource("https://u:secret@m.example/debian-security/", "bookworm-security", ("main",), "x"),
)
SETTINGS = resolve_settings({}, "")
# What mmdebstrap leaves: a tar under the name that it was given.
MAKES = """
with open(os.path.join(os.path.dirname(sys.argv[0]), "stdin"), "w") as file:
    file.write(sys.stdin.read())
open(sys.argv[-2], "wb").write(b"x" * 10240)
"""
FAILS = """
open(sys.argv[-2], "wb").write(b"x")
sys.exit("E: one\\nE: https://u:secret@m.example/debian/ cannot be reached")
"""


def make(tmp_path, sources=SOURCES):
    return make_rootfs(tmp_path / "rootfs", "bookworm", sources, tmp_path / "dpkg.conf", SETTINGS)


def blob(layout, descriptor):
    """The bytes that a descriptor names, after its size and digest are checked."""
    kind, _, digest = descriptor["digest"].partition(":")
    data = (layout / "blobs" / kind / digest).read_bytes()
    assert (hashlib.sha256(data).hexdigest(), len(data)) == (digest, descriptor["size"])
    return data


@pytest.fixture
def layout(tmp_path):
    folder = tmp_path / "layout"
    folder.mkdir()
    (tmp_path / "hostname").write_text("debian\n")
    with tarfile.open(folder / "layer.tar", "w") as tar:
        tar.add(tmp_path / "hostname", "etc/hostname")
    write_layout(folder, folder / "layer.tar", "mmdebstrap bookworm")
    return folder


def test_the_layout_is_valid_from_the_index_down_to_the_layer(layout):
    assert json.loads((layout / "oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}
    index = json.loads((layout / "index.json").read_text())
    (entry,) = index["manifests"]
    manifest = json.loads(blob(layout, entry))
    config = json.loads(blob(layout, manifest["config"]))
    (layer,) = manifest["layers"]
    data = blob(layout, layer)
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(data).hexdigest()}"]
    assert (config["os"], config["architecture"]) == ("linux", "amd64")
    assert [entry["created_by"] for entry in config["history"]] == ["mmdebstrap bookworm"]
    assert entry["mediaType"] == manifest["mediaType"] == "application/vnd.oci.image.manifest.v1+json"
    assert layer["mediaType"] == "application/vnd.oci.image.layer.v1.tar"
    assert layout_digest(layout) == entry["digest"]


def test_the_layout_holds_its_blobs_and_nothing_else(layout):
    files = [path.relative_to(layout) for path in layout.rglob("*") if path.is_file()]
    assert sorted(map(str, files))[-2:] == ["index.json", "oci-layout"]
    assert len(files) == 5
    assert all(re.fullmatch("blobs/sha256/[0-9a-f]{64}", str(path)) for path in sorted(files)[:3])


def test_the_tar_is_the_layer_as_it_was(layout):
    (blob,) = [path for path in layout.glob("blobs/sha256/*") if tarfile.is_tarfile(path)]
    with tarfile.open(blob) as tar:
        assert tar.getnames() == ["etc/hostname"]


def test_a_root_file_system_is_made_from_the_machines_sources(program, tmp_path):
    mmdebstrap = program("mmdebstrap", MAKES)
    layout = make(tmp_path)
    assert layout == tmp_path / "rootfs" / "rootfs-bookworm"
    assert re.fullmatch("sha256:[0-9a-f]{64}", layout_digest(layout))
    (call,) = mmdebstrap.calls
    assert call.environ["SOURCE_DATE_EPOCH"] == "1735689600"
    assert call.arguments[-3::2] == ["bookworm", "-"]
    assert f"--dpkgopt={tmp_path}/dpkg.conf" in call.arguments
    assert (mmdebstrap.path.parent / "stdin").read_text() == (
        "deb https://u:secret@m.example/debian/ bookworm main\n"
        "deb https://u:secret@m.example/debian-security/ bookworm-security main\n"
    )


def test_a_password_of_a_mirror_is_in_no_argument_and_not_left_in_the_image(program, tmp_path):
    mmdebstrap = program("mmdebstrap", MAKES)
    make(tmp_path)
    (call,) = mmdebstrap.calls
    assert "secret" not in " ".join(call.arguments)
    (hook,) = [word for word in call.arguments if word.startswith("--customize-hook=sed")]
    file = tmp_path / "etc" / "apt" / "sources.list"
    file.parent.mkdir(parents=True)
    file.write_text((mmdebstrap.path.parent / "stdin").read_text())
    # As mmdebstrap runs a hook: by a shell, with the root as its first argument.
    script = hook.removeprefix("--customize-hook=")
    subprocess.run(["sh", "-c", script, "exec", tmp_path], check=True)
    assert file.read_text() == (
        "deb https://m.example/debian/ bookworm main\n"
        "deb https://m.example/debian-security/ bookworm-security main\n"
    )


def test_what_is_made_is_used_again(program, tmp_path):
    mmdebstrap = program("mmdebstrap", MAKES)
    assert make(tmp_path) == make(tmp_path)
    assert len(mmdebstrap.calls) == 1


def test_a_failure_is_told_by_its_last_words_and_leaves_nothing(program, tmp_path):
    program("mmdebstrap", FAILS)
    with pytest.raises(Refusal) as refusal:
        make(tmp_path)
    assert str(refusal.value) == (
        "mmdebstrap could not make a Debian bookworm from this machine's apt sources: "
        "E: one E: https://***@m.example/debian/ cannot be reached"
    )
    assert list((tmp_path / "rootfs").iterdir()) == []


def test_a_machine_without_a_debian_mirror_is_told_what_else_to_do(program, tmp_path):
    mmdebstrap = program("mmdebstrap", MAKES)
    with pytest.raises(Refusal, match=r"knows no Debian mirror .*BASE_REGISTRY"):
        make(tmp_path, ())
    assert mmdebstrap.calls == []
