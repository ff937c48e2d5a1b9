import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STUB = f"""#!{sys.executable} -I
import json, os, sys
given = {{k: v for k, v in os.environ.items() if k.startswith("TORCH_POOL_CLI_")}}
with open("calls", "a") as calls:
    print(json.dumps([sys.argv[1:], given, os.environ.get("PROFILE")]), file=calls)
with open("paths", "w") as paths:
    print({{name: value for name, value in os.environ.items() if name.startswith("PYTHON")}}, file=paths)
"""
HOSTILE = [
    "$(shell touch made)",
    "$$(touch made)",
    "`touch made`",
    ";touch made",
    "| touch made",
    "a b",
    "../x",
    "'",
    '"',
    "$(MAKE)",
    "${HOME}",
    "#",
    "a\nb",
    "",
    "%",
    "\\",
]


@pytest.fixture
def project(tmp_path):
    """The real Makefile beside interpreters that only write down how they were called."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    for path in (tmp_path / ".venv/bin/python", tmp_path / "path/python3"):
        path.parent.mkdir(parents=True)
        path.write_text(STUB)
        path.chmod(0o755)
    return tmp_path


def make(project, *arguments, **environ):
    return subprocess.run(
        ["make", *arguments],
        cwd=project,
        env={"PATH": f"{project}/path:{os.defpath}", **environ},
        capture_output=True,
        text=True,
        check=False,
    )


def calls(project):
    path = project / "calls"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.parametrize("value", HOSTILE)
def test_a_value_of_the_command_line_arrives_as_it_was_typed(project, value):
    assert make(project, "build", f"PROFILE={value}").returncode == 0
    assert calls(project)[-1] == [["-m", "scripts", "build"], {"TORCH_POOL_CLI_PROFILE": value}, None]
    assert not (project / "made").exists()


@pytest.mark.parametrize("value", HOSTILE)
def test_a_value_of_the_shell_arrives_as_it_was_exported(project, value):
    assert make(project, "build", PROFILE=value).returncode == 0
    assert calls(project)[-1] == [["-m", "scripts", "build"], {}, value]
    assert not (project / "made").exists()


def test_the_command_line_and_the_shell_stay_apart(project):
    make(project, "build", "PROFILE=infer", PROFILE="train")
    assert calls(project)[-1][1] == {"TORCH_POOL_CLI_PROFILE": "infer"}


@pytest.mark.parametrize("name", ["PROFIL", "SHELL", "run", "name", "PYTHON", "MAKE"])
def test_an_unknown_name_is_left_to_python_and_runs_nothing(project, name):
    assert make(project, "build", f"{name}=$(shell touch made)").returncode == 0
    assert calls(project)[-1][0] == ["-m", "scripts", "build"]
    assert not (project / "made").exists()


@pytest.mark.parametrize("words", [[], ["PYTHONPATH=x"], ["PYTHONPATH=$(shell touch made)"]])
def test_python_finds_our_packages_whatever_its_own_variables_say(project, words):
    assert make(project, "build", *words, PYTHONPATH="/no", PYTHONSAFEPATH="1").returncode == 0
    assert calls(project)[-1] == [["-m", "scripts", "build"], {}, None]
    assert (project / "paths").read_text() == "{'PYTHONPATH': 'entrypoint'}\n"
    assert not (project / "made").exists()


def test_a_dry_make_runs_nothing(project):
    result = make(project, "-n", "build", "PROFILE=$(shell touch made)")
    assert (result.returncode, calls(project), (project / "made").exists()) == (0, [], False)


def test_parallel_targets_set_up_the_machine_once(project):
    assert make(project, "-j", "list", "build", "lint", "PROFILE=infer").returncode == 0
    assert [call[0] for call in calls(project)] == [
        ["-m", "scripts.bootstrap"],
        ["-m", "scripts", "list"],
        ["-m", "scripts", "build"],
        ["-m", "scripts", "lint"],
    ]


def test_a_failure_fails(project):
    (project / ".venv/bin/python").write_text("#!/bin/sh\nexit 69\n")
    assert "Error 69" in make(project, "build").stderr


def test_help_is_the_default_and_lists_every_target(project):
    result = make(project)
    targets = re.findall(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    listed = re.findall(r"^make (\S+) +\S", result.stdout, re.MULTILINE)
    assert [*listed, "venv"] == targets
    assert calls(project) == []
    assert result.stdout == make(project, "help", "-j").stdout


def test_every_target_has_a_command():
    listed = subprocess.run(
        [sys.executable, "-m", "scripts", "?"],
        cwd=ROOT,
        env={"PYTHONPATH": "entrypoint"},
        capture_output=True,
        text=True,
        check=False,
    )
    used = re.findall(r"^(\S+): venv .*\n\t@\$\(run\) \$@$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert (listed.returncode, listed.stdout) == (64, "")
    commands = listed.stderr.removeprefix("torch-pool: one command is needed: ").rstrip().split(", ")
    assert sorted(commands) == sorted(used)


def test_a_wrong_setting_is_one_line_and_a_usage_error():
    result = subprocess.run(
        [sys.executable, "-m", "scripts", "list"],
        cwd=ROOT,
        env={"PYTHONPATH": "entrypoint", "TORCH_POOL_CLI_PROFIL": "infer"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stdout) == (64, "")
    assert re.fullmatch(
        r"torch-pool: the command line sets PROFIL, .*did you mean PROFILE.*\n", result.stderr
    )
