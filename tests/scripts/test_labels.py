import os
import subprocess
from dataclasses import replace

import pytest
from torch_pool.refusal import Refusal

from scripts.bases import load_table
from scripts.gate import OCI_LABELS
from scripts.images import ROOT
from scripts.labels import Commit, build_labels, read_commit, read_home
from tests.scripts.passing import READY_BASE

COMMIT = Commit("0123456789abcdef" * 2 + "01234567", 1_735_689_599, dirty=False)
ZEROS = Commit("0" * 40, 0, dirty=True)
DIGEST = "sha256:" + "0a" * 32


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A git checkout with one commit of a known time."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    # The developer's own configuration may trust every folder.
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("GIT_COMMITTER_DATE", "2024-12-31T23:59:59+0000")
    (tmp_path / "file").write_text("one\n")
    for command in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=a", "-c", "user.email=a@b.example", "commit", "-qm", "x"],
    ):
        subprocess.run(["git", "-C", tmp_path, *command], check=True)
    return tmp_path


def test_a_clean_checkout_is_its_commit(repository):
    commit = read_commit(repository)
    assert (len(commit.id), commit.time, commit.dirty) == (40, 1_735_689_599, False)


@pytest.mark.parametrize("name", ["file", "new"])
def test_a_changed_or_a_new_file_makes_it_dirty(repository, name):
    (repository / name).write_text("two\n")
    commit = read_commit(repository)
    assert commit.dirty
    assert commit.version.endswith("-dirty")


def test_an_archive_without_git_is_a_dirty_commit_of_zeros(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert read_commit(tmp_path) == ZEROS


def test_a_machine_without_git_too(repository, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    assert read_commit(repository) == ZEROS


def test_a_checkout_that_git_does_not_trust_is_refused_with_the_cure(repository, monkeypatch):
    # git's own switch for its tests: every folder counts as another user's.
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    with pytest.raises(Refusal, match=f"safe.directory {repository}"):
        read_commit(repository)


def test_a_version_is_the_date_and_the_commit():
    assert COMMIT.version == "20241231-0123456789ab"
    assert replace(COMMIT, dirty=True).version == "20241231-0123456789ab-dirty"
    assert COMMIT.created == "2024-12-31T23:59:59Z"


def test_the_labels_of_a_build_name_the_commit_and_what_the_base_holds():
    labels = build_labels(COMMIT, READY_BASE, "", ())
    assert labels["org.opencontainers.image.revision"] == COMMIT.id
    assert labels["org.opencontainers.image.created"] == "2024-12-31T23:59:59Z"
    assert labels["io.torch-pool.torch"] == "2.6.0+cu124"
    assert labels["io.torch-pool.python"] == "3.11.2"


def test_build_and_template_together_give_every_label_that_the_gate_wants():
    by_template = {"title", "description", "ref.name"}
    given = {
        name.removeprefix("org.opencontainers.image.") for name in build_labels(COMMIT, READY_BASE, "", ())
    }
    assert set(OCI_LABELS) <= given | by_template
    assert not given & by_template


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"digest": DIGEST},
            {"base.name": "docker.io/pytorch/pytorch:2.6.0-cuda12.4-cudnn9-runtime", "base.digest": DIGEST},
        ),
        ({}, {}),
        ({"kind": "wheels", "digest": None, "reference": ""}, {}),
    ],
)
def test_a_base_is_named_where_others_can_have_it(changes, expected):
    row = replace(load_table().bases["cuda12.4-runtime"], **changes)
    labels = build_labels(COMMIT, replace(READY_BASE, base=row), "", ())
    prefix = "org.opencontainers.image."
    found = {name.removeprefix(prefix): value for name, value in labels.items() if ".base." in name}
    assert found == expected


def test_a_published_source_is_named_and_labels_of_the_base_that_are_not_ours_are_emptied():
    inherited = [
        f"org.opencontainers.image.{name}" for name in ("source", "base.name", "ref.name", "version")
    ]
    labels = build_labels(COMMIT, READY_BASE, "", [*inherited, "maintainer"])
    emptied = {name for name, value in labels.items() if not value}
    assert emptied == {"org.opencontainers.image.source", "org.opencontainers.image.base.name"}
    home = "https://git.example/team/torch-pool"
    assert build_labels(COMMIT, READY_BASE, home, inherited)["org.opencontainers.image.source"] == home


@pytest.mark.parametrize(
    ("remote", "home"),
    [
        ("https://git.example/team/torch-pool.git", "https://git.example/team/torch-pool"),
        ("https://user:secret@git.example/team/torch-pool", ""),
        ("git@git.example:team/torch-pool", ""),
        ("/srv/torch-pool", ""),
    ],
)
def test_the_source_is_gits_remote_where_that_is_a_plain_web_address(repository, remote, home):
    subprocess.run(["git", "-C", repository, "remote", "add", "origin", remote], check=True)
    assert read_home(repository) == home


def test_an_archive_inside_another_checkout_is_not_that_checkouts_commit(repository):
    (repository / "inner").mkdir()
    assert read_commit(repository / "inner") == ZEROS


def test_the_repository_of_a_git_hook_is_not_taken_for_ours(repository, monkeypatch):
    monkeypatch.setenv("GIT_DIR", str(ROOT / ".git"))
    assert read_commit(repository).time == 1_735_689_599


def test_a_status_that_git_cannot_tell_counts_as_dirty(repository):
    (repository / ".git" / "index").write_text("broken")
    assert read_commit(repository).dirty
