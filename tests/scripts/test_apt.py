import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from torch_pool.refusal import Refusal

from scripts.apt import apt_install, apt_reason, install_steps, redacted, run_apt
from scripts.settings import resolve_settings

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("Reading...\nE: Unable to locate package x\nE: more\n", "Unable to locate package x"),
        (
            "E: Failed to fetch http://u:p@mirror.example/x  Could not resolve 'mirror.example'\n",
            "Failed to fetch http://***@mirror.example/x  Could not resolve 'mirror.example'",
        ),
        (
            "dpkg: error: requested operation requires superuser\n",
            "error: requested operation requires superuser",
        ),
        ("Killed\n", "Killed"),
        ("", "no output"),
    ],
)
def test_a_failure_of_apt_is_its_first_error(output, reason):
    assert apt_reason(output) == reason


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("http://user:pass@host/debian", "http://***@host/debian"),
        ("a https://token@host b http://u:p@other", "a https://***@host b http://***@other"),
        ("http://host/debian?mail=a@b", "http://host/debian?mail=a@b"),
        ("file:///opt/simple", "file:///opt/simple"),
    ],
)
def test_credentials_are_never_shown(text, expected):
    assert redacted(text) == expected


def test_an_install_can_only_add_and_finishes_a_broken_one_first():
    steps = install_steps(["x"])
    installs = [step.command for step in steps if "install" in step.command]
    assert all({"--no-remove", "--no-upgrade", "--no-install-recommends"} <= set(words) for words in installs)
    assert ["--fix-broken" in words for words in installs] == [True, False]
    assert [step.may_fail for step in steps] == [True, True, True, False]


@pytest.mark.parametrize(
    ("environ", "path", "why"),
    [
        ({"ENGINE": "none"}, os.defpath, r"ENGINE=none \(from the shell\) forbids it"),
        ({}, "/no/such/folder", "this machine has no apt"),
    ],
)
def test_without_leave_the_command_is_shown_and_not_run(monkeypatch, environ, path, why):
    monkeypatch.setenv("PATH", path)
    command = "apt-get install .* x y$"
    with pytest.raises(
        Refusal, match=rf"^x and y must be installed to test, and {why}; run as root: {command}"
    ):
        apt_install(["x", "y"], resolve_settings(environ, ""), "to test")


def test_a_failed_command_is_a_refusal_with_its_log(tmp_path):
    log = tmp_path / "logs/apt.log"
    with pytest.raises(Refusal, match=r"failed: broken \(all of it is in .*apt.log\)"):
        run_apt(("sh", "-c", "echo E: broken >&2; exit 100"), log)
    assert log.read_text() == "E: broken\n"


def test_a_command_that_may_fail_is_reported_and_passed_over(tmp_path, capsys):
    run_apt(("sh", "-c", "echo W: lost; exit 100"), tmp_path / "log", may_fail=True)
    assert (
        capsys.readouterr().err
        == "torch-pool: sh -c 'echo W: lost; exit 100' failed: lost; going on without\n"
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_waits_until_the_command_is_done(tmp_path, number):
    # The command itself sends the signal to us, so that nothing depends on time.
    program = (
        "import sys; from pathlib import Path; from scripts.apt import run_apt\n"
        "run_apt(('sh', '-c', f'kill -{sys.argv[1]} $PPID; echo done'), Path('log'))\n"
        "print('not reached')"
    )
    result = subprocess.run(
        [sys.executable, "-c", program, str(int(number))],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT}:{ROOT}/entrypoint"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode in {-number, 130}
    assert result.stderr.startswith("torch-pool: stopping as soon as sh is done\n")
    assert ((tmp_path / "log").read_text(), result.stdout) == ("done\n", "")
