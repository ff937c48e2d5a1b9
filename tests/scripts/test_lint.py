import sys
from pathlib import Path

import pytest
from torch_pool.refusal import Refusal

from scripts.lint import plan_lint, read_tracked, run_all


@pytest.mark.parametrize(
    ("name", "first", "checked"),
    [
        ("a.sh", "echo", True),
        ("run", "#!/bin/bash", True),
        ("run", "#!/usr/bin/env bash", True),
        ("run", "#!/bin/sh -eu", True),
        ("run", "#!/opt/flash", False),
        ("run", "#!/usr/bin/env python3", False),
        ("notes.md", "#!", False),
        ("empty", "", False),
    ],
)
def test_shell_scripts_are_known_by_name_or_first_line(tmp_path, name, first, checked):
    path = tmp_path / name
    path.write_text(f"{first}\n")
    assert (("shellcheck", str(path)) in plan_lint([path])) == checked


def test_dockerfiles_and_python_are_checked(tmp_path):
    path = tmp_path / "Dockerfile"
    path.write_text("FROM scratch\n")
    assert plan_lint([path]) == (
        ("ruff", "format", "--check"),
        ("ruff", "check"),
        ("mypy",),
        ("hadolint", str(path)),
    )


def test_every_checker_runs_and_each_failure_is_named(capfd):
    python = Path(sys.executable).name
    status = run_all([(python, "-c", "print('one'); exit(1)"), (python, "-c", "print('two')")])
    out, err = capfd.readouterr()
    assert (status, out.split()) == (1, ["one", "two"])
    assert err == f"torch-pool: failed: {python} -c 'print('\"'\"'one'\"'\"'); exit(1)'\n"


def test_without_git_there_is_nothing_to_lint(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Refusal, match="files that git tracks"):
        read_tracked()
