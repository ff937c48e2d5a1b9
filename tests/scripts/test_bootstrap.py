import hashlib
import os
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from scripts.bootstrap import pip_reason

ROOT = Path(__file__).parents[2]
HASH = "0" * 64


@pytest.fixture
def project(tmp_path):
    """A clone with nothing to install, so that the real venv and pip run without a network."""
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(
        ROOT / "entrypoint", tmp_path / "entrypoint", ignore=shutil.ignore_patterns("__pycache__")
    )
    (tmp_path / "requirements.lock").write_text("")
    return tmp_path


def start(project, **environ):
    # The interpreter below the tests' own virtual environment: a machine's python3 is not in one.
    python = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
    plain = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": "entrypoint",
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_RETRIES": "1",
    }
    return subprocess.Popen(
        [python, "-m", "scripts.bootstrap"],
        cwd=project,
        env=plain | environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(process):
    stdout, stderr = process.communicate()
    return process.returncode, stdout, stderr


def stamp(project):
    path = project / ".venv/requirements.sha256"
    return path.read_text() if path.exists() else None


def test_a_venv_is_made_once_for_each_lock(project):
    status, stdout, stderr = finish(start(project))
    assert (status, stdout) == (0, "")
    assert stderr == "torch-pool: setting up .venv from requirements.lock; a minute or so\n"
    assert stamp(project) == hashlib.sha256(b"").hexdigest()
    assert finish(start(project)) == (0, "", "")

    (project / "requirements.lock").write_text(f"no-such-package==1 --hash=sha256:{HASH}\n")
    dead = {"PIP_INDEX_URL": "http://user:secret@127.0.0.1:9/simple"}
    status, stdout, stderr = finish(start(project, **dead))
    assert (status, stdout, stamp(project)) == (69, "", None)
    assert stderr.splitlines()[-1].startswith(
        "torch-pool: .venv cannot be made: the package index cannot be reached; look at the network"
    )
    assert "secret" not in stderr


def test_two_at_once_make_it_once_and_a_killed_run_is_made_good(project):
    killed = start(project)
    while not (project / ".venv/pyvenv.cfg").exists():
        assert killed.poll() is None
    os.killpg(killed.pid, signal.SIGKILL)
    assert finish(killed)[0] == -signal.SIGKILL
    assert stamp(project) is None

    results = [finish(process) for process in (start(project), start(project))]
    assert [status for status, _, _ in results] == [0, 0]
    told = sorted(line for _, _, stderr in results for line in stderr.splitlines())
    assert told == [
        "torch-pool: setting up .venv from requirements.lock; a minute or so",
        "torch-pool: waiting for another run that sets up .venv",
    ]
    assert stamp(project) is not None


@pytest.fixture
def package(project):
    """A package of our own in the lock, which pip takes from a folder; returns how pip finds it."""
    folder = project / "wheels"
    folder.mkdir()
    wheel = folder / "ours-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("ours.py", "")
        archive.writestr("ours-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: ours\nVersion: 1\n")
        archive.writestr(
            "ours-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("ours-1.dist-info/RECORD", "")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    (project / "requirements.lock").write_text(f"ours==1 --hash=sha256:{digest}\n")
    return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder)}


def imports(project):
    return subprocess.run([project / ".venv/bin/python", "-c", "import ours"], check=False).returncode == 0


def test_variables_that_send_packages_elsewhere_do_not_reach_pip(project, package):
    elsewhere = {
        "PIP_TARGET": str(project / "elsewhere"),
        "PIP_PREFIX": str(project / "elsewhere"),
        "PIP_ROOT": str(project / "elsewhere"),
        "PIP_DRY_RUN": "1",
        "PIP_USER": "1",
        "PIP_NO_DEPS": "1",
        "PIP_ONLY_BINARY": ":none:",
        "PIP_NO_BINARY": ":all:",
        "PIP_REQUIREMENT": "/no/such/file",
        "PIP_CONSTRAINT": "/no/such/file",
        "PIP_PYTHON": "/no/such/python",
        "PIP_LOG": str(project / "elsewhere"),
    }
    assert finish(start(project, **package, **elsewhere))[0] == 0
    assert imports(project)
    assert not (project / "elsewhere").exists()


def test_what_pips_own_configuration_puts_elsewhere_is_seen_and_not_taken_for_complete(project, package):
    (project / "pip.conf").write_text(f"[install]\ntarget = {project}/elsewhere\n")
    status, _, stderr = finish(start(project, **package, PIP_CONFIG_FILE=str(project / "pip.conf")))
    assert (status, stamp(project)) == (69, None)
    assert stderr.splitlines()[-1].startswith(
        "torch-pool: .venv cannot be made: pip did not put ours==1 into it; look for target, prefix"
    )
    assert finish(start(project, **package))[0] == 0
    assert imports(project)


def test_a_full_disk_is_named(project, small_disk):
    small_disk(project / ".venv", "1M")
    status, _, stderr = finish(start(project))
    assert (status, stamp(project)) == (69, None)
    assert "Traceback" not in stderr
    assert stderr.splitlines()[-1].startswith(
        f"torch-pool: .venv cannot be made: the disk of {project}/.venv is full; make room there"
    )


def test_ctrl_c_is_one_line(project):
    process = start(project)
    while not (project / ".venv/pyvenv.cfg").exists():
        assert process.poll() is None
    os.killpg(process.pid, signal.SIGINT)
    status, _, stderr = finish(process)
    assert (status, stderr.splitlines()[-1]) == (130, "torch-pool: interrupted; the same command goes on")
    assert stamp(project) is None


def test_a_misspelt_setting_is_refused_before_anything_is_made(project):
    status, _, stderr = finish(start(project, TORCH_POOL_CLI_PROFIL="infer"))
    assert (status, stderr.count("\n")) == (64, 1)
    assert not (project / ".venv").exists()


def test_an_older_python_can_read_the_file_far_enough_to_say_so():
    source = (ROOT / "scripts/bootstrap.py").read_text()
    check = source.index("if sys.version_info")
    assert "import" not in source[:check].replace("import sys\n", "")
    program = (
        "import ast, sys; sys.version_info = (3, 9); source = sys.stdin.read();"
        "exec(compile(ast.parse(source, feature_version=(3, 7)), 'bootstrap', 'exec'))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], input=source, capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stderr.count("\n")) == (1, 1)
    assert result.stderr.startswith("torch-pool: Python 3.11 or newer is needed")


RETRYING = (
    "WARNING: Retrying (Retry(total=0, connect=None, read=None)) after connection broken by "
    "'NewConnectionError('<HTTPSConnection object>: Failed to establish a new connection: [Errno -2] "
    "Name or service not known')': /simple/iniconfig/\n"
)
UNTRUSTED = (
    "WARNING: Retrying (Retry(total=0, connect=None, read=None)) after connection broken by "
    "'SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: "
    "self-signed certificate (_ssl.c:1006)'))': /simple/iniconfig/\n"
)
LACKING = (
    "ERROR: Could not find a version that satisfies the requirement iniconfig==2.0.0 (from versions: none)\n"
    "ERROR: No matching distribution found for iniconfig==2.0.0\n"
)
MISMATCH = (
    "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE. If you have updated the "
    "package versions, please update the hashes.\n    Expected sha256 00\n         Got        b6\n"
)


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (RETRYING + LACKING, "the package index cannot be reached"),
        (UNTRUSTED + LACKING, "the index's certificate is not trusted"),
        (LACKING, "the package index lacks a version"),
        (RETRYING + MISMATCH, "a download is not the file that requirements.lock names"),
        ("ERROR: [Errno 28] No space left on device\n", "the disk is full"),
        ("Collecting x\nERROR: something at https://u:p@h/x\n", "something at https://***@h/x"),
        ("killed\n", "killed"),
        ("", "no output"),
    ],
)
def test_a_failure_of_pip_is_named_by_its_cause(output, reason):
    assert pip_reason(output).startswith(reason)
