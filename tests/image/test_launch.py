"""The launch in real containers: what belongs to the command, what is said, and who wins."""

import json
import os
import pty
import subprocess
import time
from pathlib import Path

import pytest
from torch_pool.launch import HOOKS

from tests.image.conftest import Ended, check_noise, printed

pytestmark = pytest.mark.image

ASYNC, NATIVE, EXPANDABLE = "backend:cudaMallocAsync", "backend:native", "expandable_segments:True"
CONF = "PYTORCH_CUDA_ALLOC_CONF"
HANDLES_NOTHING = "import time; print('up', flush=True); time.sleep(600)"
ORPHAN = """
import os, sys, time
reader, writer = os.pipe()
if os.fork() == 0:
    grandchild = os.fork()
    if grandchild == 0:
        os._exit(0)
    os.write(writer, str(grandchild).encode())
    os._exit(0)
os.wait()
grandchild = os.read(reader, 20).decode()
limit = time.monotonic() + 10
while os.path.exists(f"/proc/{grandchild}"):
    assert time.monotonic() < limit, "a zombie"
    time.sleep(0.01)
print("reaped")
"""


def docker(*arguments, **options):
    """The docker command itself, for what the SDK does otherwise."""
    command = ["docker", "run", "--rm", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, **options)
    return Ended(done.returncode, done.stdout, done.stderr)


# What belongs to the command


@pytest.mark.parametrize(
    ("command", "stdout"),
    [
        (["bash", "-c", "echo $0", "x"], "x\n"),
        (["python", "-c", "print(1)"], "1\n"),
        (["sh", "-c", "printf '%s|' \"$@\"", "-", "", " ", "*", "$X", "a\nb", "--help", "ü"], None),
        (["env", "-u", CONF, "printenv", "HOME"], "/home/torch-pool\n"),
    ],
    ids=["bash", "python", "any bytes", "env"],
)
def test_the_command_runs_exactly_as_given(image, run, command, stdout):
    ended = run(image, *command)
    assert (ended.status, ended.stdout) == (0, "|".join([*command[4:], ""]) if stdout is None else stdout)


def test_the_init_comes_first_and_the_command_is_its_only_child(run):
    """No process of ours stays."""
    ended = run("infer", "sh", "-c", "cat /proc/[0-9]*/comm")
    assert sorted(ended.stdout.splitlines()) == ["sh", "tini"]


def test_ignored_signals_of_python_are_not_inherited(run):
    ended = run("infer", "grep", "SigIgn", "/proc/self/status")
    # 32 and 33 are glibc's own: GNU make leaves them ignored in what it starts, an engine included.
    ignored = int(ended.stdout.split()[1], 16) & ~(0b11 << 31)
    assert ignored == 0


def test_a_broken_pipe_ends_the_writer_by_its_signal(run):
    ended = run("infer", "bash", "-c", "yes | head -n 1; echo ${PIPESTATUS[0]}")
    assert ended.stdout == "y\n141\n"


@pytest.mark.parametrize("status", [0, 1, 64, 69, 78, 125, 126, 127, 130, 255])
def test_the_status_is_that_of_the_command(run, status):
    assert run("infer", "sh", "-c", f"exit {status}").status == status


@pytest.mark.parametrize(("signal", "status"), [("TERM", 143), ("KILL", 137), ("SEGV", 139)])
def test_a_signal_that_ends_the_command_is_128_and_its_number(run, signal, status):
    assert (
        run("infer", "python", "-c", f"import os, signal; os.kill(os.getpid(), signal.SIG{signal})")["status"]
        == status
        if False
        else run(
            "infer", "python", "-c", f"import os, signal; os.kill(os.getpid(), signal.SIG{signal})"
        ).status
        == status
    )


@pytest.mark.parametrize(
    ("command", "status", "said"),
    [
        ("no-such-tool", 127, "'no-such-tool': no such command on PATH; check the name"),
        ("/etc/passwd", 126, "/etc/passwd is not executable; run chmod +x"),
        ("/tmp", 126, "is a directory, not a program"),
        ("python -c 'print(1)'", 127, "came as one argument: drop the outer quotes, or use sh -c '...'"),
    ],
)
def test_a_command_that_cannot_start_ends_as_in_a_shell(run, command, status, said):
    """Case C11: never split, explained in one line."""
    ended = run("infer", command, expects=[said])
    assert (ended.status, ended.stdout) == (status, "")


def test_a_script_with_windows_line_ends_names_its_interpreter(run, folder):
    (folder / "run.sh").write_bytes(b"#!/bin/sh\r\necho X\r\n")
    (folder / "run.sh").chmod(0o755)
    said = "/w/run.sh has Windows line ends (CRLF), so '/bin/sh' is not found"
    assert run("infer", "/w/run.sh", volumes={folder: "/w"}, expects=[said]).status == 127


def test_an_orphan_of_the_command_is_reaped(run):
    assert run("infer", "python", "-c", ORPHAN).stdout == "reaped\n"


@pytest.mark.parametrize("options", [{}, {"init": True}], ids=["our init", "docker --init as well"])
def test_a_program_that_handles_nothing_stops_at_once(started, options):
    container = started("infer", "python", "-c", HANDLES_NOTHING, **options)
    assert printed(container, "up")
    wrapped = container.get_wrapped_container()
    before = time.monotonic()
    wrapped.stop(timeout=10)
    took_seconds = time.monotonic() - before
    assert wrapped.wait()["StatusCode"] == 143
    # Docker's own part varies with the machine; without an init it would be the whole ten seconds.
    assert took_seconds < 3
    assert b"WARN" not in wrapped.logs()


def test_ctrl_c_reaches_the_program(started):
    container = started("infer", "python", "-c", HANDLES_NOTHING)
    assert printed(container, "up")
    container.get_wrapped_container().kill("SIGINT")
    assert container.get_wrapped_container().wait()["StatusCode"] == 130


# What may be typed instead of a command


@pytest.mark.parametrize("flag", ["--help", "--version", "-h"])
def test_flags_alone_are_ours_and_need_neither_gpu_nor_network(image, run, flag):
    ended = run(image, flag, network_mode="none")
    assert (ended.status, ended.stderr) == (0, "")
    assert ended.stdout.startswith(
        "usage: torch-pool" if flag != "--version" else "torch-pool 0.1.0 (profile"
    )


def test_a_wrong_flag_is_a_usage_error(run):
    assert (
        run("infer", "--frobnicate", expects=["'--frobnicate' is not a command of torch-pool"]).status == 64
    )


def test_no_command_and_no_terminal_is_a_usage_error(run):
    """Case C20: `docker run -d IMAGE` must not end as if all were well."""
    ended = run("infer", expects=["no command was given; name one, such as: python train.py"])
    assert (ended.status, ended.stdout) == (64, "")


def test_no_command_at_a_terminal_gives_a_shell(client):
    leader, follower = pty.openpty()
    streams = {"stdin": follower, "stdout": follower, "stderr": follower}
    command = ["docker", "run", "--rm", "--interactive", "--tty", "torch-pool:infer"]
    with subprocess.Popen(command, **streams) as process:
        os.write(leader, b"exit $((6 * 7))\n")
        assert process.wait(timeout=60) == 42
    os.close(leader)
    os.close(follower)


@pytest.mark.parametrize("command", ["monitor", "bench", "tune", "advise"])
def test_a_command_of_a_later_version_says_so(run, command):
    ended = run("infer", "torch-pool", command, expects=[f"torch-pool {command} is not in this version"])
    assert ended.status == 64


# Who wins


@pytest.mark.parametrize(
    ("given", "conf", "source"),
    [
        ({}, ASYNC, "baked profile"),
        ({CONF: ASYNC}, ASYNC, "baked profile"),
        ({"TORCH_POOL_PROFILE": "shared"}, ASYNC, "TORCH_POOL_PROFILE=shared"),
        ({"TORCH_POOL_ALLOCATOR": "native"}, NATIVE, "TORCH_POOL_ALLOCATOR"),
        ({CONF: EXPANDABLE}, EXPANDABLE, "-e"),
        ({CONF: ""}, "", "-e"),
    ],
)
def test_the_value_of_the_command_is_the_one_that_show_explains(run, given, conf, source):
    assert run("infer", "printenv", CONF, environment=given).stdout == f"{conf}\n"
    (shown, *_) = json.loads(run("infer", "torch-pool", "show", "--json", environment=given).stdout)[
        "settings"
    ]
    assert (shown["value"], shown["source"]) == (conf, source)


def test_a_variable_that_the_host_does_not_have_is_unset_and_not_empty(run):
    ended = docker("-e", CONF, "torch-pool:infer", "printenv", CONF, env={"PATH": "/usr/bin:/bin"})
    assert ended.stdout == f"{ASYNC}\n"


@pytest.mark.parametrize("quote", ["'", '"'])
def test_quotes_that_an_env_file_keeps_are_refused(client, tmp_path, quote):
    """Case C01."""
    (tmp_path / "env").write_text(f"{CONF}={quote}{EXPANDABLE}{quote}\n")
    ended = docker("--env-file", str(tmp_path / "env"), "torch-pool:infer", "printenv", CONF)
    assert (ended.status, ended.stdout) == (78, "")
    check_noise(ended, [f"refused: -e {CONF}"])
    assert "--env-file keeps them" in ended.stderr


@pytest.mark.parametrize(
    "conf", ["garbage", "expandable_segments:true", "backend: cudaMallocAsync", "backend:cudaMallocAsync=1"]
)
def test_what_torch_would_refuse_late_is_refused_before_the_command(run, conf):
    ended = run("infer", "echo", "X", environment={CONF: conf}, expects=["refused: "])
    assert (ended.status, ended.stdout) == (78, "")


def test_a_mounted_profile_is_applied_and_its_mistakes_have_a_line(run, folder):
    (folder / "mine.yaml").write_text("summary: Mine\nextends: infer\nenv: {OMP_NUM_THREADS: '4'}\n")
    (folder / "wrong.yaml").write_text("summary: Mine\nextends: infer\ngpu: no\n")
    options = {"volumes": {folder: "/profiles"}}
    good = run(
        "infer",
        "printenv",
        "OMP_NUM_THREADS",
        environment={"TORCH_POOL_PROFILE": "/profiles/mine.yaml"},
        **options,
    )
    assert good.stdout == "4\n"
    said = "refused: /profiles/wrong.yaml:3: no is false in YAML 1.1"
    wrong = {"TORCH_POOL_PROFILE": "/profiles/wrong.yaml"}
    assert run("infer", "true", environment=wrong, expects=[said], **options).status == 78


def test_library_paths_are_passed_on_as_they_are(run):
    """Cases C20 and C34: no CUDA or compat directory is added, an empty element stays."""
    path = "/opt/old/cudnn/lib64::/usr/local/cuda/lib64"
    show = ["sh", "-c", 'echo "${LD_LIBRARY_PATH-unset}"']
    assert run("infer", *show, environment={"LD_LIBRARY_PATH": path}).stdout == f"{path}\n"
    assert run("infer", *show).stdout == "unset\n"


def test_the_doctor_names_a_foreign_library_with_its_version(run, folder):
    """Case C34."""
    (folder / "libcudnn.so.8.9.7").touch()
    (folder / "libcudnn.so.8").symlink_to("libcudnn.so.8.9.7")
    environment = {"LD_LIBRARY_PATH": "/opt/old"}
    ended = run("infer", "torch-pool", "doctor", environment=environment, volumes={folder: "/opt/old"})
    assert "/opt/old/libcudnn.so.8 (8.9.7)" in ended.stdout


# Containers of every kind


HARD = {
    "a read-only root": {"read_only": True},
    "no capability": {"cap_drop": ["ALL"]},
    "no network": {"network_mode": "none"},
    "no new privileges": {"security_opt": ["no-new-privileges"]},
    "an unknown user": {"user": "955"},
    "a large uid": {"user": "1000540000:0"},
    "root": {"user": "0"},
    "all at once": {
        "read_only": True,
        "cap_drop": ["ALL"],
        "network_mode": "none",
        "security_opt": ["no-new-privileges"],
        "user": "12345:0",
    },
}


@pytest.mark.parametrize("options", HARD.values(), ids=HARD)
def test_a_hardened_container_starts_with_a_home_and_a_name(run, options):
    """Case C21."""
    script = 'python -c "import getpass; print(bool(getpass.getuser()))" && touch "$HOME/x" && echo written'
    expects = ["caches are in /dev/shm"] if options.get("read_only") else []
    ended = run("infer", "sh", "-c", script, expects=expects, **options)
    assert (ended.status, ended.stdout) == (0, "True\nwritten\n")


@pytest.mark.parametrize("user", ["955", "12345:0", "1000540000"])
def test_inductor_finds_a_cache_directory_for_an_unknown_user(run, user):
    """Case C21."""
    program = (
        "import torch._inductor.runtime.cache_dir_utils as c, os; print(os.access(c.cache_dir(), os.W_OK))"
    )
    assert run("infer", "python", "-c", program, user=user).stdout == "True\n"


def test_a_name_that_the_user_gives_is_kept(run):
    ended = run("infer", "sh", "-c", "echo $USER", user="955", environment={"USER": "alice"})
    assert ended.stdout == "alice\n"


def test_a_start_writes_nothing_into_the_image(client, started):
    container = started("infer", "true").get_wrapped_container()
    container.wait()
    assert [change["Path"] for change in container.diff() or ()] == []


def test_the_bytecode_of_the_launch_is_in_the_image(run):
    """A read-only root or an unknown uid could not write it, and every start would compile."""
    script = (
        "cd /opt/torch-pool/lib; "
        "for ending in py pyc; do find . -name \"*.$ending\" ! -path '*/compiled/*' | wc -l; done"
    )
    sources, compiled = run("infer", "sh", "-c", script).stdout.split()
    assert sources == compiled


def test_another_entrypoint_leaves_a_working_python_with_the_baked_conf(image, run):
    """What Kubernetes does with `command:`."""
    program = f"import os; print(os.environ['{CONF}'], 'TORCH_POOL_LAUNCHED' in os.environ)"
    assert run(image, "-c", program, entrypoint=["python"]).stdout == f"{ASYNC} False\n"


def test_under_a_command_of_kubernetes_show_gives_what_the_launch_would_have_set(run):
    script = 'eval "$(torch-pool show --sh)" && echo $TORCH_POOL_MEMORY $TORCH_POOL_LAUNCHED'
    ended = run("infer", script, entrypoint=["sh", "-c"], environment={"TORCH_POOL_PROFILE": "shared"})
    assert ended.stdout == f"0.5 shared {CONF}={ASYNC} TORCH_POOL_MEMORY=0.5\n"


def test_a_process_of_docker_exec_has_the_baked_conf_and_can_have_the_rest(started):
    container = started(
        "infer", "sh", "-c", "echo up; exec sleep 600", environment={"TORCH_POOL_PROFILE": "shared"}
    )
    assert printed(container, "up")

    def execute(*command):
        return container.get_wrapped_container().exec_run(list(command)).output.decode()

    assert execute("printenv", CONF, "TORCH_POOL_MEMORY") == f"{ASYNC}\n"
    script = 'eval "$(torch-pool show --sh)" && echo $TORCH_POOL_MEMORY'
    assert execute("sh", "-c", script) == "0.5\n"
    assert execute("torch-pool", "run", "printenv", "TORCH_POOL_MEMORY").splitlines()[-1] == "0.5"


def test_the_entrypoint_repeated_in_cmd_changes_nothing_and_says_nothing_more(client, run):
    entrypoint = client.images.get("torch-pool:infer").attrs["Config"]["Entrypoint"]
    once, twice = run("infer", "env"), run("infer", *entrypoint, "env")
    without_host = [
        sorted(line for line in ended.stdout.splitlines() if not line.startswith("HOSTNAME="))
        for ended in (once, twice)
    ]
    assert without_host[0] == without_host[1]
    assert twice.stderr == once.stderr


def test_another_profile_in_a_launch_takes_back_what_the_first_one_set(run):
    inner = ["torch-pool", "run", "--profile", "nlp", "sh", "-c", "echo ${TORCH_POOL_MEMORY-unset}"]
    assert run("shared", *inner).stdout == "unset\n"


def test_a_restart_is_a_start(started):
    container = started("infer", "sh", "-c", "echo up $TORCH_POOL_LAUNCHED; exec sleep 600", user="955")
    assert printed(container, "up")
    wrapped = container.get_wrapped_container()
    wrapped.restart(timeout=5)
    first, second = printed(container, "up.*\nup.*\n").splitlines()
    assert first == second
    said = wrapped.logs(stdout=False).decode().splitlines()
    assert said[: len(said) // 2] == said[len(said) // 2 :]


@pytest.fixture
def commit(client, started):
    """Commits a container that has ended to an image, as docker commit does."""
    references = []

    def commit(*command, changes=None, **options):
        container = started("infer", *command, **options).get_wrapped_container()
        container.wait()
        tag = f"commit-{os.getpid()}-{len(references)}"
        reference = f"torch-pool-test:{tag}"
        container.commit("torch-pool-test", tag, changes=changes)
        references.append(reference)
        return reference, container.logs(stderr=False).decode()

    yield commit
    for reference in references:
        client.images.remove(reference, force=True)


def source(run, image, **environment):
    shown = json.loads(run(image, "torch-pool", "show", "--json", environment=environment).stdout)
    return {setting["name"]: (setting["value"], setting["source"]) for setting in shown["settings"]}


def test_after_docker_commit_the_baked_conf_is_still_the_images(commit, run):
    reference, _ = commit("true")
    assert source(run, reference) == {CONF: (ASYNC, "baked profile")}
    assert source(run, reference, TORCH_POOL_ALLOCATOR="native")[CONF] == (NATIVE, "TORCH_POOL_ALLOCATOR")


def test_after_docker_commit_a_word_of_the_user_is_still_the_users(commit, run):
    reference, _ = commit("true", environment={"TORCH_POOL_ALLOCATOR": "native"})
    assert source(run, reference)[CONF] == (NATIVE, "TORCH_POOL_ALLOCATOR")


def test_what_a_launch_made_is_recognised_where_it_was_frozen_into_an_image(commit, run):
    """Somebody writes the whole environment of a launched container into ENV."""
    _, made = commit("env", environment={"TORCH_POOL_PROFILE": "shared", "TORCH_POOL_ALLOCATOR": "native"})
    names = ("TORCH_POOL_", CONF)
    frozen = [
        f'ENV {n}="{v}"' for n, v in (line.split("=", 1) for line in made.splitlines()) if n.startswith(names)
    ]
    reference, _ = commit("true", changes=frozen)
    settings = source(run, reference, TORCH_POOL_ALLOCATOR="expandable", TORCH_POOL_PROFILE="infer")
    assert settings == {CONF: (EXPANDABLE, "TORCH_POOL_ALLOCATOR")}


def test_a_derived_image_with_a_conf_of_its_own_is_the_users_word(commit, run):
    reference, _ = commit("true", changes=[f"ENV {CONF}={NATIVE}"])
    assert source(run, reference)[CONF] == (NATIVE, "-e")
    assert run(reference, "printenv", CONF).stdout == f"{NATIVE}\n"


# Hooks


@pytest.fixture
def hooks(folder: Path):
    """A directory of hooks, given as name and text; its mount."""

    def write(**scripts):
        for name, text in scripts.items():
            path = folder / name.removeprefix("_").replace("_", "-")
            path.write_text(f"#!/bin/sh\n{text}\n")
            path.chmod(0o755 if not name.endswith("plain") else 0o644)
        return {folder: HOOKS}

    return write


def test_hooks_run_in_the_order_of_their_names_before_the_command(run, hooks):
    mount = hooks(_20_b="echo second", _10_a=f"echo first ${CONF}")
    ended = run("infer", "echo", "command", volumes=mount)
    assert ended.stdout == "command\n"
    assert ended.stderr.splitlines()[-2:] == [f"first {ASYNC}", "second"]


def test_a_hook_that_fails_stops_the_start(run, hooks):
    mount = hooks(_10_a="exit 3", _20_b="echo never")
    ended = run("infer", "echo", "X", volumes=mount, expects=[f"hook {HOOKS}/10-a failed with status 3"])
    assert (ended.status, ended.stdout) == (78, "")
    assert "never" not in ended.stderr


def test_a_hook_that_is_not_executable_is_skipped_with_a_warning(run, hooks):
    said = f"warning: hook {HOOKS}/10-plain is not executable and was skipped: chmod +x it"
    assert run("infer", "echo", "X", volumes=hooks(_10_plain="exit 3"), expects=[said]).stdout == "X\n"


def test_what_a_hook_leaves_running_is_no_child_of_the_command(run, hooks):
    """Case C09: tini adopts it, and reaps it."""
    mount = hooks(_10_a="(exec sleep 600 </dev/null >/dev/null 2>&1) &")
    program = """
import os, signal, time
found = [p for p in os.listdir("/proc") if p.isdigit() and open(f"/proc/{p}/comm").read() == "sleep\\n"]
parents = [open(f"/proc/{p}/stat").read().split()[3] for p in found]
os.kill(int(found[0]), signal.SIGKILL)
limit = time.monotonic() + 10
while os.path.exists(f"/proc/{found[0]}"):
    assert time.monotonic() < limit, "a zombie"
    time.sleep(0.01)
print(parents)
"""
    assert run("infer", "python", "-c", program, volumes=mount).stdout == "['1']\n"


# What is said


def test_one_line_on_stderr_names_profile_and_conf(image, run):
    """And the usual warnings: no GPU here, and little shared memory for the images that train."""
    lines = run(image, "true").stderr.splitlines()
    assert lines[0].startswith(f"torch-pool: profile {image}: {CONF}={ASYNC}")
    assert len(lines) == (3 if image in ("train", "nlp", "llm-finetune") else 2)


def test_at_a_terminal_our_line_stands_before_the_commands(run):
    """Nothing of ours is lost or late in a buffer."""
    lines = run("infer", "echo", "X", tty=True).stdout.splitlines()
    assert lines[0].startswith("torch-pool: profile infer")
    assert lines[-1] == "X"


def test_quiet_keeps_warnings_only(run):
    ended = run("infer", "true", environment={"TORCH_POOL_LOG": "quiet"})
    assert [line.partition(": no GPU")[0] for line in ended.stderr.splitlines()] == ["torch-pool: warning"]


def test_json_is_one_object(run):
    ended = run("infer", "true", environment={"TORCH_POOL_LOG": "json"})
    report = json.loads(ended.stderr)
    assert (report["profile"], report["settings"][0]["value"]) == ("infer", ASYNC)


def test_colour_is_for_terminals_that_want_it(run):
    environment = {"TERM": "xterm", "TORCH_POOL_LOG": "quiet"}
    assert "\x1b[1;33mwarning" in run("infer", "true", tty=True, environment=environment).stdout
    assert "\x1b" not in run("infer", "true", tty=True, environment={**environment, "NO_COLOR": "1"}).stdout
    assert "\x1b" not in run("infer", "true", environment=environment).stderr


def test_a_refusal_stands_in_the_termination_log_of_kubernetes(run, tmp_path):
    log = tmp_path / "log"
    log.touch()
    log.chmod(0o666)
    ended = run(
        "infer",
        "true",
        environment={CONF: "garbage"},
        volumes={log: "/dev/termination-log"},
        expects=["refused: "],
    )
    assert log.read_text() == ended.stderr.splitlines()[-1].replace("refused: ", "") + "\n"


def test_training_images_warn_of_small_shared_memory_and_start(run):
    """Case C18."""
    ended = run("train", "echo", "X")
    (line,) = [line for line in ended.stderr.splitlines() if "shm" in line]
    assert ended.stdout == "X\n"
    assert "/dev/shm is 64 MiB" in line
    assert "--shm-size=1024m" in line
    assert "emptyDir" in line


@pytest.mark.parametrize(
    ("image_name", "options"),
    [("train", {"shm_size": "8g"}), ("infer", {})],
)
def test_nothing_is_said_of_shared_memory_where_there_is_enough_or_none_is_needed(run, image_name, options):
    """Case C18."""
    assert "shm" not in run(image_name, "true", **options).stderr


def test_the_shared_memory_of_the_host_is_judged_by_its_own_size(run):
    """Case C18: large on most hosts; in a container that is itself the host of this engine it may not be."""
    size = os.statvfs("/dev/shm")
    large = size.f_blocks * size.f_frsize >= 2**30
    assert ("shm" in run("train", "true", ipc_mode="host").stderr) == (not large)
