import json
import os
import re
import shlex
import signal
import subprocess
from pathlib import Path

import pytest
from torch_pool.refusal import Refusal

from scripts.engine import Engine, docker_client, ensure_engine, parse_engine, read_engine
from scripts.engine_setup import (
    Host,
    Lack,
    Run,
    StartDaemon,
    WriteFile,
    carry_out,
    has_release,
    parse_debian,
    plan_setup,
    read_host,
    start_daemon,
)
from scripts.settings import resolve_settings

NOTHING = Lack(client=True, buildx=True, engine=True)
FRESH = Host("bookworm", False, False, False, False, "http://mirror.example/debian/")
PINS = """\
Package: docker.io docker-cli docker-buildx containerd
Pin: release o=Debian,n=trixie
Pin-Priority: 500
"""
ONLY_PINS = """
Package: *
Pin: release o=Debian,n=trixie
Pin-Priority: -1
"""
SOURCE = """\
Types: deb
URIs: http://mirror.example/debian/
Suites: trixie
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
"""
BUILDX = {"Name": "buildx", "Version": "0.13.1"}
UP = {
    "ServerVersion": "26.1.5",
    "DockerRootDir": "/var/lib/docker",
    "DriverStatus": [["driver-type", "io.containerd.snapshotter.v1"]],
    "ClientInfo": {"Context": "default", "Plugins": [BUILDX]},
}
NO_SOCKET = (
    "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?"
)
DOWN = {"ServerErrors": [NO_SOCKET], "ClientInfo": UP["ClientInfo"]}


def files(steps):
    return {str(step.path): step.text for step in steps if isinstance(step, WriteFile)}


def commands(steps):
    return [step.shell for step in steps if not isinstance(step, WriteFile)]


def installed(steps):
    installs = [step for step in steps if isinstance(step, Run) and "install" in step.command]
    return [word for step in installs for word in step.command[2:] if not word.startswith("-")]


def test_a_fresh_debian_12_gets_a_pinned_engine_with_the_image_store_on():
    steps = plan_setup(NOTHING, FRESH)
    assert files(steps) == {
        "/etc/docker/daemon.json": '{"features": {"containerd-snapshotter": true}}\n',
        "/etc/apt/preferences.d/torch-pool": PINS + ONLY_PINS,
        "/etc/apt/sources.list.d/torch-pool-trixie.sources": SOURCE,
    }
    install = "apt-get install --yes --no-install-recommends --no-remove --no-upgrade"
    assert commands(steps) == [
        "dpkg --configure -a",
        "apt-get update --error-on=any",
        f"{install} --fix-broken",
        f"{install} docker.io docker-cli docker-buildx iptables ca-certificates",
        "setsid dockerd > /var/log/torch-pool-dockerd.log 2>&1 < /dev/null &",
    ]
    # Nothing can start before its configuration is there, nor apt see the release without its pins.
    order = [step.path.name for step in steps if isinstance(step, WriteFile)]
    assert order == ["daemon.json", "torch-pool", "torch-pool-trixie.sources"]
    assert isinstance(steps[2], WriteFile)


@pytest.mark.parametrize(
    ("lack", "host", "written", "packages", "last"),
    [
        (NOTHING, FRESH._replace(debian="trixie"), ["daemon.json"], 5, "setsid"),
        (NOTHING, FRESH._replace(daemon_json=True), ["torch-pool", "torch-pool-trixie.sources"], 5, "setsid"),
        (NOTHING, FRESH._replace(has_pinned_release=True), ["daemon.json", "torch-pool"], 5, "setsid"),
        (NOTHING, FRESH._replace(debian="trixie", systemd=True), ["daemon.json"], 5, "systemctl"),
        (Lack(False, False, True), FRESH._replace(dockerd=True), [], 0, "setsid"),
        (Lack(False, False, True), FRESH._replace(dockerd=True, systemd=True, debian=""), [], 0, "systemctl"),
        (Lack(False, True, False), FRESH._replace(debian="trixie"), [], 1, "apt-get"),
        (Lack(False, True, True), FRESH._replace(debian="trixie", dockerd=True), [], 1, "setsid"),
        (Lack(True, True, False), FRESH._replace(debian="trixie", dockerd=True), [], 2, "apt-get"),
    ],
    ids=[
        "Debian 13 needs no other release",
        "a daemon.json of the owner is kept",
        "pins of the owner are kept",
        "systemd starts it",
        "an installed engine is only started",
        "an installed engine is started on any system",
        "buildx alone is missing",
        "buildx is missing and the engine is down",
        "client and buildx are missing",
    ],
)
def test_only_what_is_missing_is_set_up(lack, host, written, packages, last):
    steps = plan_setup(lack, host)
    assert [Path(path).name for path in files(steps)] == written
    assert len(installed(steps)) == packages
    assert commands(steps)[-1].startswith(last)


def test_pins_of_the_owner_of_the_release_are_not_overruled():
    steps = plan_setup(NOTHING, FRESH._replace(has_pinned_release=True))
    assert files(steps)["/etc/apt/preferences.d/torch-pool"] == PINS


@pytest.mark.parametrize(
    ("host", "message"),
    [
        (FRESH._replace(debian=""), "only Debian 12 and newer"),
        (FRESH._replace(pinned_mirror=""), "name no Debian mirror"),
    ],
)
def test_a_machine_that_cannot_be_helped_is_told_so(host, message):
    with pytest.raises(Refusal, match=message):
        plan_setup(NOTHING, host)


@pytest.mark.parametrize(
    ("os_release", "codename"),
    [
        ('ID=debian\nVERSION_ID="12"\nVERSION_CODENAME=bookworm\n', "bookworm"),
        ("ID=debian\nVERSION_CODENAME=forky\n", "forky"),
        ('ID=debian\nVERSION_ID="11"\nVERSION_CODENAME=bullseye\n', ""),
        ('ID=ubuntu\nID_LIKE=debian\nVERSION_ID="24.04"\nVERSION_CODENAME=noble\n', ""),
        ("", ""),
    ],
)
def test_debian_is_told_from_others(os_release, codename):
    assert parse_debian(os_release) == codename


@pytest.mark.parametrize(
    ("status", "dockerd"), [("installed", True), ("", True), ("half-configured", False), ("unpacked", False)]
)
def test_an_interrupted_installation_is_not_taken_for_an_engine(path, monkeypatch, status, dockerd):
    monkeypatch.setenv("PATH", path("dpkg-query", f"echo -n {status}"))
    assert read_host().dockerd == dockerd


def test_our_own_source_is_not_taken_for_the_owners():
    ours = "trixie|trixie|main|http://m/|Debian|/etc/apt/sources.list.d/torch-pool-trixie.sources:1\n"
    theirs = "trixie|testing|main|http://m/|Debian|/etc/apt/sources.list:3\n"
    path = Path("/etc/apt/sources.list.d/torch-pool-trixie.sources")
    assert [has_release(text, "trixie", besides=path) for text in ("", ours, ours + theirs)] == [
        False,
        False,
        True,
    ]


def test_the_host_is_read(tmp_path):
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/os-release").write_text("ID=debian\nVERSION_ID=12\nVERSION_CODENAME=bookworm\n")
    host = read_host(tmp_path)
    assert (host.debian, host.systemd, host.daemon_json) == ("bookworm", True, False)


def test_the_shown_commands_write_the_same_files(tmp_path):
    steps = [
        WriteFile(tmp_path / "shell/a b", PINS + ONLY_PINS),
        WriteFile(tmp_path / "own/a b", PINS + ONLY_PINS),
    ]
    subprocess.run(steps[0].shell, shell=True, check=True)
    carry_out(steps[1], lambda: True)
    assert [step.path.read_text() for step in steps] == [PINS + ONLY_PINS] * 2
    assert list((tmp_path / "own").iterdir()) == [tmp_path / "own/a b"]


@pytest.mark.parametrize(
    ("info", "errors", "host", "expected"),
    [
        (json.dumps(UP), "", "", Engine("docker", "0.13.1", "", "", "", "26.1.5", True, "/var/lib/docker")),
        (
            json.dumps(DOWN),
            "errors pretty printing info\n",
            "",
            Engine("docker", "0.13.1", NO_SOCKET, down=True),
        ),
        (
            "",
            'context "x" not found\n',
            "tcp://u:p@h:1",
            Engine("docker", "", 'context "x" not found', "DOCKER_HOST=tcp://***@h:1"),
        ),
        (
            json.dumps(
                UP
                | {
                    "ClientInfo": {"Context": "far", "Plugins": [BUILDX | {"Err": "bad"}]},
                    "DriverStatus": None,
                }
            ),
            "",
            "",
            Engine("docker", "", "", "the context far", "", "26.1.5", False, "/var/lib/docker"),
        ),
        ("host:\n  arch: amd64\n", "", "", Engine("docker", "", "it says nothing")),
        ("[]", "", "", Engine("docker", "", "it says nothing")),
    ],
    ids=["up", "down", "no such context", "plugin is broken", "another program named docker", "no mapping"],
)
def test_what_docker_says_is_understood(info, errors, host, expected):
    assert parse_engine("docker", info, errors, {"DOCKER_HOST": host}) == expected


@pytest.mark.parametrize(
    ("info", "errors", "down"),
    [
        (json.dumps(DOWN), "", True),
        # Docker 28 has no ServerErrors; it says so on stderr.
        (json.dumps({"ServerErrors": None, "ClientInfo": UP["ClientInfo"]}), NO_SOCKET, True),
        ("", NO_SOCKET, False),
        (json.dumps(UP), "", False),
    ],
)
def test_an_engine_that_is_only_not_running_is_told_from_a_client_that_is_broken(info, errors, down):
    assert parse_engine("docker", info, errors, {}).down is down


@pytest.fixture(autouse=True)
def _machine_left_alone(monkeypatch, tmp_path):
    """However a test goes wrong, it cannot set up an engine on the machine that runs it."""

    def refuse(step, _answers):
        raise AssertionError(f"the test would have done this: {step.shell}")

    monkeypatch.setattr("scripts.engine.carry_out", refuse)
    monkeypatch.setattr("scripts.engine.LOCK", tmp_path / "lock")


@pytest.fixture
def path(tmp_path):
    """A PATH of stubs: `docker` says what a test wants, any other program writes down its call."""
    folder = tmp_path / "path"
    folder.mkdir()

    def stub(name, text):
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
        return str(folder)

    for name in ("apt-get", "apt-config", "dpkg", "systemctl", "dockerd", "setsid"):
        stub(name, f"echo {name} $* >> {shlex.quote(str(tmp_path / 'calls'))}")
    stub.calls = tmp_path / "calls"
    stub.docker = lambda said, status=0: stub(
        "docker", f"/bin/cat <<'E'\n{json.dumps(said)}\nE\necho Cannot connect >&2; exit {status}"
    )
    return stub


def test_a_complete_engine_is_used_as_it_is(path):
    environ = {"PATH": path.docker(UP)}
    engine = ensure_engine(resolve_settings({}, ""), environ)
    assert (engine.version, engine.buildx, engine.image_store) == ("26.1.5", "0.13.1", True)
    assert not path.calls.exists()


@pytest.mark.parametrize(
    ("said", "environ", "message"),
    [
        (
            DOWN,
            {"DOCKER_HOST": "tcp://h:1"},
            r"^docker with DOCKER_HOST=tcp://h:1 does not work \(Cannot conn",
        ),
        (
            DOWN | {"ClientInfo": {"Context": "far", "Plugins": [BUILDX]}},
            {},
            r"^docker with the context far does not work \(Cannot",
        ),
        (DOWN | {"ServerErrors": ["permission denied at /x.sock"]}, {}, "add the user to the group docker"),
    ],
)
def test_an_engine_that_an_installation_would_not_cure_is_never_installed(path, said, environ, message):
    with pytest.raises(Refusal, match=message):
        ensure_engine(resolve_settings({}, ""), {"PATH": path.docker(said, 1), **environ})
    assert not path.calls.exists()


INITIALIZE = "Failed to initialize: unable to resolve docker endpoint: "
NO_CONTEXT = f'{INITIALIZE}context "nope": context not found: open /root/.docker/contexts/meta/x/meta.json'
NO_KEYS = f"{INITIALIZE}open /root/.docker/ca.pem: no such file or directory"
BROKEN = "WARNING: Error loading config file: /root/.docker/config.json: unexpected end of JSON input"
UNREADABLE = "WARNING: Error loading config file: open /root/.docker/config.json: permission denied"
PARSING = "WARNING: Error parsing config file (/root/.docker/config.json): unexpected EOF"
FILE = r"; repair or remove /root/\.docker/config\.json, which docker cannot read$"
NO_PLUGIN = UP | {"ClientInfo": {"Context": "default", "Plugins": None}}


@pytest.mark.parametrize(
    ("info", "errors", "environ", "message"),
    [
        ("", NO_CONTEXT, {"DOCKER_CONTEXT": "nope"}, r"^docker with DOCKER_CONTEXT=nope .*context not found"),
        (
            "",
            NO_KEYS,
            {"DOCKER_TLS_VERIFY": "1"},
            r"^docker with DOCKER_TLS_VERIFY=1 .*; correct .* unset it",
        ),
        (json.dumps(DOWN), "", {"DOCKER_CERT_PATH": "/x"}, "^docker with DOCKER_CERT_PATH=/x does not work"),
        (json.dumps(DOWN), BROKEN, {}, FILE),
        (json.dumps(DOWN), UNREADABLE, {}, FILE),
        (json.dumps(NO_PLUGIN), PARSING, {}, rf"^/\S+/docker shows no buildx{FILE}"),
        ("", NO_SOCKET, {}, r"^docker does not work \(Cannot connect"),
        ("", "Segmentation fault", {}, r"^docker does not work \(Segmentation fault\); repair what"),
        ("", "", {}, r"^docker does not work \(it says nothing\); repair what"),
        ("{}", "Error: something else", {}, r"^docker does not work \(Error: something else\); repair"),
    ],
)
def test_an_error_of_the_client_is_refused_and_nothing_is_set_up(path, info, errors, environ, message):
    folder = path("docker", f"/bin/cat <<'E'\n{info}\nE\n/bin/cat >&2 <<'E'\n{errors}\nE\nexit 1")
    with pytest.raises(Refusal, match=message) as refusal:
        ensure_engine(resolve_settings({}, ""), {"PATH": folder, **environ})
    assert refusal.value.status == 69
    assert "\n" not in str(refusal.value)
    assert not path.calls.exists()


@pytest.mark.parametrize(
    "errors",
    [
        NO_SOCKET,
        "failed to connect to the docker API at unix:///var/run/docker.sock; check if the path is correct",
    ],
)
def test_an_engine_that_is_down_is_started(path, monkeypatch, errors):
    folder = path.docker(DOWN | {"ServerErrors": [errors]}, 1)
    monkeypatch.setenv("PATH", folder)
    with pytest.raises(AssertionError, match=r"would have done this: (setsid dockerd|systemctl enable)"):
        ensure_engine(resolve_settings({}, ""), {"PATH": folder, "DOCKER_CONTEXT": "default"})


@pytest.mark.parametrize(
    ("environ", "why"),
    [
        ({"ENGINE": "none"}, r"ENGINE=none \(from the shell\) forbids to set it up"),
        ({"DRY_RUN": "1"}, "this is a dry run"),
    ],
)
def test_without_leave_nothing_is_done_and_the_commands_are_shown(path, monkeypatch, environ, why):
    folder = path.docker(DOWN, 1)
    monkeypatch.setenv("PATH", folder)
    with pytest.raises(
        Refusal, match=rf"^no Docker engine answers \(Cannot connect .*\), and {why}; "
    ) as refusal:
        ensure_engine(resolve_settings(environ, ""), {"PATH": folder})
    assert re.search(r"as root:\n  (setsid dockerd|systemctl enable --now docker)", str(refusal.value))
    called = path.calls.read_text().splitlines()
    assert all(line.startswith("apt-get indextargets") for line in called)


def test_a_remote_engine_without_a_local_client_says_what_to_install():
    with pytest.raises(
        Refusal, match=r"^docker with DOCKER_HOST=tcp://h:1 .*; install docker-cli and docker-buildx, or"
    ):
        ensure_engine(resolve_settings({}, ""), {"PATH": "/no/such/folder", "DOCKER_HOST": "tcp://h:1"})


def test_no_docker_at_all_is_an_engine_that_does_not_answer():
    assert read_engine({"PATH": "/no/such/folder"}) == Engine("", "", "docker is not installed")


def test_a_client_for_a_dead_engine_is_a_refusal():
    with pytest.raises(Refusal, match="the Docker engine does not answer"):
        docker_client({"DOCKER_HOST": "tcp://127.0.0.1:9"})


def test_a_daemon_is_started_apart_and_waited_for(tmp_path, monkeypatch, path):
    folder = path(
        "dockerd", f"echo $$ > {tmp_path}/pid; /bin/ps -o sid= -p $$ > {tmp_path}/sid; exec /bin/sleep 60"
    )
    monkeypatch.setenv("PATH", folder)
    daemon = StartDaemon(tmp_path / "log", tmp_path / "stale.pid")
    daemon.pid_file.write_text(str(os.getpid()))
    sid = tmp_path / "sid"
    start_daemon(daemon, lambda: sid.exists() and sid.read_text() != "")
    pid = int((tmp_path / "pid").read_text())
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert int(sid.read_text()) == pid
    assert not daemon.pid_file.exists()


def test_a_daemon_that_stops_is_reported_with_the_end_of_its_log(tmp_path, monkeypatch, path):
    monkeypatch.setenv("PATH", path("dockerd", "for n in 1 2 3 4 5 6; do echo line $n; done; exit 1"))
    with pytest.raises(Refusal, match=r"(?s)^dockerd stopped; .*/log:\n  line 2\n.*  line 6$"):
        carry_out(StartDaemon(tmp_path / "log", tmp_path / "none.pid"), lambda: False)
