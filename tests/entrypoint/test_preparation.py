"""The launch off the plain path, run as it is run in a container."""

import json
import os
from pathlib import Path

import pytest
from torch_pool import launch
from torch_pool.finding import Finding
from torch_pool.hardware import cuda_major
from torch_pool.launch import record
from torch_pool.preparation import NEVER_STRICT, Plan, harden, refuse
from torch_pool.profile import Profile
from torch_pool.refusal import Refusal
from torch_pool.report import report_refusal
from torch_pool.settings import Settings

from tests.entrypoint.image_tree import PYTHON, lay_out, run

ASYNC, NATIVE, EXPANDABLE = "backend:cudaMallocAsync", "backend:native", "expandable_segments:True"
CONF = "PYTORCH_CUDA_ALLOC_CONF"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="another uid and mounts need root")
needs_no_gpu = pytest.mark.skipif(
    any(Path(sign).exists() for sign in launch._GPU_SIGNS), reason="this is about a machine without a GPU"
)
PROFILE = Profile("infer", "x", {"backend": "cudaMallocAsync"}, {}, {})


def lines(result):
    """What we said, without the word on a missing GPU, which is not what these tests are about."""
    found = [line.removeprefix("torch-pool: ") for line in result.stderr.decode().splitlines()]
    return [line for line in found if "no GPU: " not in line]


def environ_of(image, env, *prefix):
    result = image.run(*prefix, image.stub, env=env)
    assert result.returncode == 0, result.stderr
    return image.started().environ


# Precedence and sources


@pytest.mark.parametrize(
    ("given", "conf", "said"),
    [
        (
            {"TORCH_POOL_ALLOCATOR": "native"},
            NATIVE,
            [f"profile infer: {CONF}={NATIVE} (TORCH_POOL_ALLOCATOR)"],
        ),
        ({"TORCH_POOL_ALLOCATOR": ""}, ASYNC, [f"profile infer: {CONF}={ASYNC}"]),
        ({CONF: EXPANDABLE}, EXPANDABLE, [f"profile infer: {CONF}={EXPANDABLE} (-e)"]),
        (
            {CONF: EXPANDABLE, "TORCH_POOL_ALLOCATOR": "async"},
            EXPANDABLE,
            [
                f"profile infer: {CONF}={EXPANDABLE} (-e)",
                f"warning: -e {CONF}={EXPANDABLE} overrules TORCH_POOL_ALLOCATOR=async; remove one of them",
            ],
        ),
        (
            {"TORCH_POOL_PROFILE": "shared"},
            ASYNC,
            [f"profile shared: {CONF}={ASYNC} TORCH_POOL_MEMORY=0.5 (TORCH_POOL_PROFILE=shared)"],
        ),
        ({CONF: ""}, "", [f"profile infer: {CONF}= (-e)"]),
    ],
    ids=[
        "one word",
        "an empty word is unset",
        "-e",
        "-e over a word",
        "a named profile",
        "an empty -e is a value",
    ],
)
def test_the_highest_word_wins_and_is_named(image, env, given, conf, said):
    result = image.run(image.stub, env={**env, **given})
    assert image.started().environ[CONF] == conf
    assert lines(result)[: len(said)] == said


def test_what_the_user_gave_is_never_rewritten(image, env):
    given = {CONF: " expandable_segments:True , ", "CUDA_VISIBLE_DEVICES": "", "MINE": "a\nb"}
    started = environ_of(image, {**env, **given})
    assert {name: started[name] for name in given} == given


@pytest.mark.parametrize("quote", ["'", '"'])
def test_quotes_from_an_env_file_are_refused(image, env, quote):
    """Case C01: docker run --env-file keeps them, where Compose strips them."""
    for name, value in ((CONF, EXPANDABLE), ("TORCH_POOL_ALLOCATOR", "native")):
        result = image.run("echo", "X", env={**env, name: f"{quote}{value}{quote}"})
        assert (result.returncode, result.stdout) == (78, b"")
        (line,) = lines(result)
        assert name in line
        assert "--env-file keeps" in line


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"TORCH_POOL_PROFILE": "inferr"},
            "TORCH_POOL_PROFILE='inferr' is not a profile of this",
        ),
        ({"TORCH_POOL_PROFILE": "../etc/passwd"}, "../etc/passwd: cannot be read"),
        ({"TORCH_POOL_PROFILE": "__init__"}, "is not a profile of this image"),
        ({"TORCH_POOL_ALLOCATOR": "cudaMallocAsync"}, "is not one of async, native, expandable"),
        ({CONF: "bogus:1"}, "bogus"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_line_before_the_command_starts(image, env, given, message):
    result = image.run("echo", "X", env={**env, **given})
    assert (result.returncode, result.stdout) == (78, b"")
    (line,) = lines(result)
    assert line.startswith("refused: ")
    assert message in line


# Mounted profiles


def test_a_mounted_profile_is_applied(image, env, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("summary: Mine\nextends: infer\nallocator: {expandable_segments: true}\nenv: {A: b}\n")
    result = image.run(image.stub, env={**env, "TORCH_POOL_PROFILE": str(path)})
    assert lines(result) == [f"profile mine: {CONF}={EXPANDABLE} A=b (mounted profile {path})"]
    assert {name: image.started().environ[name] for name in (CONF, "A")} == {CONF: EXPANDABLE, "A": "b"}


def test_what_a_profile_sets_stands_against_our_own_defaults(image, env, tmp_path):
    text = "summary: x\nextends: infer\nenv: {HF_HOME: /data/hf, TRITON_CACHE_DIR: /data/triton}\n"
    (tmp_path / "mine.yaml").write_text(text)
    given = {**env, "HOME": "/no/such/home", "TORCH_POOL_PROFILE": str(tmp_path / "mine.yaml")}
    started = environ_of(image, given)
    assert (started["HF_HOME"], started["TRITON_CACHE_DIR"]) == ("/data/hf", "/data/triton")


def test_a_mistake_in_a_mounted_profile_is_refused_with_its_line(image, env, tmp_path):
    (tmp_path / "mine.yaml").write_text("summary: Mine\nextends: infer\ngpu: no\n")
    result = image.run("echo", "X", env={**env, "TORCH_POOL_PROFILE": "mine.yaml"}, cwd=tmp_path)
    assert result.returncode == 78
    assert lines(result) == [
        'refused: mine.yaml:3: no is false in YAML 1.1; write false, or "no" in quotes for the word'
    ]


def test_a_yaml_module_of_the_user_is_not_imported(image, env, tmp_path):
    (tmp_path / "yaml.py").write_text("raise SystemExit('hijacked')")
    (tmp_path / "mine.yaml").write_text("summary: Mine\nextends: infer\n")
    hostile = {**env, "PYTHONPATH": str(tmp_path), "TORCH_POOL_PROFILE": "mine.yaml"}
    assert image.run("echo", "X", env=hostile, cwd=tmp_path).stdout == b"X\n"


# A launch in a launch, derived images, docker commit


def test_the_entrypoint_repeated_in_cmd_changes_nothing_and_says_nothing_more(image, env):
    once = image.run(image.stub, env=env)
    first = image.started().environ
    twice = image.run("torch-pool", "run", image.stub, env=env)
    assert image.started().environ == first
    assert twice.stderr == once.stderr


@pytest.mark.parametrize(
    "given", [{}, {"TORCH_POOL_ALLOCATOR": "native"}, {"TORCH_POOL_PROFILE": "shared"}, {CONF: NATIVE}]
)
def test_a_launch_in_a_launch_gives_the_same_environment(image, env, given):
    once = environ_of(image, {**env, **given})
    assert environ_of(image, once) == once


def test_another_profile_in_a_launch_takes_back_what_the_first_one_set(image, env):
    first = environ_of(image, {**env, "TORCH_POOL_PROFILE": "shared"})
    second = environ_of(image, {**first, "TORCH_POOL_PROFILE": "nlp"})
    assert "TORCH_POOL_MEMORY" in first
    assert "TORCH_POOL_MEMORY" not in second
    assert second["TORCH_POOL_LAUNCHED"] == f"nlp {CONF}={ASYNC}"


def test_a_conf_changed_between_two_launches_is_the_users(image, env):
    first = environ_of(image, env)
    assert environ_of(image, {**first, CONF: NATIVE})[CONF] == NATIVE


def test_in_a_derived_image_a_named_profile_beats_the_conf_that_the_base_baked(image, env, tmp_path):
    (tmp_path / "mine.yaml").write_text("summary: x\nallocator: {expandable_segments: true}\n")
    derived = {**env, "TORCH_POOL_PROFILE": str(tmp_path / "mine.yaml")}
    assert environ_of(image, derived)[CONF] == EXPANDABLE


def test_in_a_derived_image_a_new_env_conf_is_the_users_word(image, env):
    result = image.run("true", env={**env, CONF: NATIVE, "TORCH_POOL_PROFILE": "shared"})
    assert lines(result)[0] == f"profile shared: {CONF}={NATIVE} TORCH_POOL_MEMORY=0.5 (-e)"


def test_after_docker_commit_a_start_is_as_before(image, env):
    """A commit keeps the image's ENV and what -e gave, never what a launch exported."""
    committed = {**env, "TORCH_POOL_ALLOCATOR": "native"}
    assert environ_of(image, committed) == environ_of(image, committed)
    assert environ_of(image, committed)[CONF] == NATIVE


def test_without_the_images_env_the_profile_still_applies(image, env):
    del env[CONF]
    assert environ_of(image, env)[CONF] == ASYNC


# Hooks


@needs_root
@pytest.mark.parametrize(
    ("record", "hooks"),
    [("", "exit 1"), ("infer", "exit 1"), ("infer pid-1=1", "exit 1"), ("", "echo hooked >&2")],
)
def test_hooks_run_once_in_a_container_whatever_the_environment_says(image, env, tmp_path, record, hooks):
    hook = "/etc/torch-pool/launch.d/10-x"
    script = f"""cp -a /etc {tmp_path} && mount --bind {tmp_path}/etc /etc && mkdir -p {hook[:-5]}
        printf '#!/bin/sh\n{hooks}\n' > {hook} && chmod +x {hook} && exec "$@" """
    launcher = [*PYTHON, image.root / "launch.py"]
    command = ["unshare", "--mount", "sh", "-c", script, "x", *launcher, *launcher, "echo", "X"]
    result = run(command, env={**env, "TORCH_POOL_LAUNCHED": record} if record else env)
    if "exit" in hooks:
        assert (result.returncode, result.stdout) == (78, b"")
    else:
        assert (result.stdout, result.stderr.count(b"hooked")) == (b"X\n", 1)


# Users, homes, caches


def as_uid(image, env, uid, *command, wrapper=()):
    """Run as a uid without an entry in /etc/passwd, group 0. It may read what root may, but not write it."""
    can_read = ["--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search"]
    user = ["setpriv", "--reuid", str(uid), "--regid", "0", "--clear-groups", *can_read]
    result = run([*wrapper, *user, *PYTHON, image.root / "launch.py", *command, "env"], env=env)
    assert result.returncode == 0, result.stderr
    return dict(line.split("=", 1) for line in result.stdout.decode().splitlines()), lines(result)


@needs_root
@pytest.mark.parametrize("uid", [955, 12345, 1000540000])
def test_an_unknown_uid_gets_a_name_and_keeps_a_home_that_works(image, env, uid):
    """Case C21."""
    Path(env["HOME"]).chmod(0o1777)
    started, _ = as_uid(image, env, uid)
    assert (started["USER"], started["LOGNAME"], started["HOME"]) == (f"uid{uid}", f"uid{uid}", env["HOME"])
    kept, _ = as_uid(image, {**env, "USER": "ann", "LOGNAME": "ann"}, uid)
    assert (kept["USER"], kept["LOGNAME"]) == ("ann", "ann")


@needs_root
def test_a_read_only_root_leaves_a_usable_home_and_private_caches(image, env):
    """docker run --read-only --user 12345: nothing but /dev/shm can be written."""
    Path(env["HOME"]).chmod(0o555)
    mounts = "mount --bind /tmp /tmp && mount -o remount,ro,bind /tmp && mount -t tmpfs -o ro none /var/tmp"
    script = f'{mounts} && mount -t tmpfs -o noexec none /dev/shm && exec "$@"'
    wrapper = ["unshare", "--mount", "sh", "-c", script, "x"]
    started, said = as_uid(image, {**env, "HOME": "/"}, 12345, wrapper=wrapper)
    private = "/dev/shm/.torch-pool-12345"
    assert (started["HOME"], started["TORCHINDUCTOR_CACHE_DIR"]) == (f"{private}/home", f"{private}/inductor")
    assert said[-1].startswith(f"warning: caches are in {private}, which is mounted noexec")


def test_a_home_that_is_missing_is_replaced(image, env):
    started = environ_of(image, {**env, "HOME": "/"} if os.geteuid() else {**env, "HOME": ""})
    assert os.access(started["HOME"], os.W_OK)


@needs_root
@pytest.mark.parametrize("place", ["HOME", "TMPDIR"])
def test_a_full_place_is_left(image, env, tmp_path, place):
    """The bits of a full file system allow everything."""
    (tmp_path / "full").mkdir()
    given = {**env, "TMPDIR": str(tmp_path), place: str(tmp_path / "full")}
    script = f'mount -t tmpfs -o size=4k none {given[place]} && echo x > {given[place]}/x && exec "$@"'
    wrapper = ["unshare", "--mount", "sh", "-c", script, "x"]
    result = run([*wrapper, *PYTHON, image.root / "launch.py", "env"], env=given)
    assert result.returncode == 0, result.stderr
    moved = dict(line.split("=", 1) for line in result.stdout.decode().splitlines())
    cache = "TRITON_CACHE_DIR" if place == "HOME" else "TORCHINDUCTOR_CACHE_DIR"
    assert moved[cache].startswith("/tmp/" if place == "HOME" else env["HOME"])


@pytest.mark.parametrize(
    ("variable", "place"),
    [("TRITON_CACHE_DIR", "home/.triton"), ("TORCHINDUCTOR_CACHE_DIR", "torchinductor_ann")],
)
def test_a_cache_of_code_that_others_can_write_is_not_used(image, env, tmp_path, variable, place):
    """Whoever can write there decides what the command runs; /tmp is anyone's to prepare."""
    given = {**env, "TMPDIR": str(tmp_path), "USER": "ann", "LOGNAME": "ann"}
    assert variable not in environ_of(image, given)
    (tmp_path / place).mkdir()
    (tmp_path / place).chmod(0o777)
    assert environ_of(image, given)[variable].startswith(f"{env['HOME']}/.torch-pool-")


# GPUs


@needs_no_gpu
def test_a_profile_that_wants_a_gpu_warns_and_starts(image, env):
    result = image.run("echo", "X", env={**env, "TORCH_POOL_ALLOCATOR": "native"})
    assert result.stdout == b"X\n"
    assert result.stderr.count(b"warning: no GPU: ") == 1


@needs_no_gpu
def test_strict_refuses_a_start_without_a_gpu(image, env):
    result = image.run("echo", "X", env={**env, "TORCH_POOL_STRICT": "1"})
    assert (result.returncode, result.stdout) == (69, b"")
    assert result.stderr.startswith(b"torch-pool: refused: no GPU: ")


@needs_no_gpu
def test_a_profile_that_requires_a_gpu_refuses_without_one(image, env, tmp_path):
    (tmp_path / "mine.yaml").write_text("summary: x\nextends: infer\ngpu: required\n")
    result = image.run("echo", "X", env={**env, "TORCH_POOL_PROFILE": str(tmp_path / "mine.yaml")})
    assert (result.returncode, result.stdout) == (69, b"")


@needs_no_gpu
def test_a_profile_without_a_gpu_policy_says_nothing(image, env, tmp_path):
    (tmp_path / "mine.yaml").write_text("summary: x\nextends: infer\ngpu: none\n")
    result = image.run("true", env={**env, "TORCH_POOL_PROFILE": str(tmp_path / "mine.yaml")})
    assert b"GPU" not in result.stderr


def test_an_earlier_pick_stays_in_a_launch_in_a_launch(image, env):
    """Picking again could take another GPU than the one that is held."""
    made = {CONF: ASYNC, "CUDA_VISIBLE_DEVICES": "3", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    inside = {**env, **made, "TORCH_POOL_LAUNCHED": record("shared", made), "TORCH_POOL_PROFILE": "shared"}
    started = environ_of(image, inside)
    assert {name: started[name] for name in made} == made


@needs_no_gpu
def test_where_gpus_are_locked_a_pick_from_another_container_is_none(image, env, tmp_path):
    made = {"CUDA_VISIBLE_DEVICES": "3", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    copied = {**env, **made, "TORCH_POOL_LAUNCHED": record("shared", made)}
    assert set(made).isdisjoint(environ_of(image, {**copied, "TORCH_POOL_LOCK_DIR": str(tmp_path)}))


@pytest.mark.parametrize("value", ["", "2"])
def test_a_scheduler_that_changes_the_devices_after_the_start_is_not_corrected(image, env, value):
    """Case C31: what a launch set once, nothing of ours sets again in a worker."""
    result = image.run("sh", "-c", f"CUDA_VISIBLE_DEVICES={value} env", env=env)
    assert f"CUDA_VISIBLE_DEVICES={value}" in result.stdout.decode().splitlines()


def test_devices_that_cannot_be_meant_are_refused(image, env):
    result = image.run("true", env={**env, "TORCH_POOL_DEVICES": "cuda:0"})
    assert result.returncode == 78
    assert b"TORCH_POOL_DEVICES='cuda:0' is not all, a count" in result.stderr


@pytest.mark.parametrize(
    ("version", "major"), [("2.6.0+cu124", 12), ("2.6.0+cu118", 11), ("2.6.0", 12), ("", 12)]
)
def test_the_cuda_of_a_torch_is_read_from_its_version(version, major):
    assert cuda_major(version) == major


# What is said


def test_json_gives_one_object_with_every_source_and_reason(image, env):
    result = image.run("true", env={**env, "TORCH_POOL_LOG": "json", "TORCH_POOL_ALLOCATOR": "native"})
    report = json.loads(result.stderr)
    assert report["torch_pool"] == 1
    assert report["settings"][0] == {
        "name": CONF,
        "value": NATIVE,
        "source": "TORCH_POOL_ALLOCATOR",
        "reason": "the word native",
    }


def test_a_refusal_in_json_is_one_object(image, env):
    result = image.run("true", env={**env, "TORCH_POOL_LOG": "json", "TORCH_POOL_MEMORY": "1GB"})
    assert json.loads(result.stderr)["status"] == 78


def test_quiet_keeps_warnings_only(image, env):
    given = {**env, "TORCH_POOL_LOG": "quiet", "TORCH_POOL_STRCT": "1"}
    assert [line.partition(":")[0] for line in lines(image.run("true", env=given))] == ["warning"]


def test_a_pipe_gets_no_colour(image, env):
    given = {**env, "TERM": "xterm-256color", "TORCH_POOL_STRCT": "1"}
    assert b"\x1b" not in image.run("true", env=given).stderr


def test_a_program_known_to_clash_gets_one_warning(image, env):
    result = image.run("vllm", "serve", env=env)
    assert len([line for line in lines(result) if "known to clash" in line]) == 1


def test_kubernetes_service_links_are_not_worth_a_word(image, env):
    links = {"TORCH_POOL_SERVICE_HOST": "10.0.0.1", "TORCH_POOL_PORT_80_TCP": "tcp://10.0.0.1:80"}
    assert lines(image.run("true", env={**env, **links})) == [f"profile infer: {CONF}={ASYNC}"]


def test_a_training_image_warns_of_small_shared_memory_and_starts(tmp_path, env):
    """Case C18: only ever a warning, strict or not."""
    path = tmp_path / "vast.yaml"
    path.write_text("summary: x\nextends: train\nshm: 999999GiB\n")
    image = lay_out(tmp_path / "image", path)
    for strict in ("0", "1"):
        result = image.run("echo", "X", env={**env, "TORCH_POOL_STRICT": strict})
        if strict == "0":
            assert result.stdout == b"X\n"
        assert b"wants at least" in result.stderr or strict == "1"


# Strict, and where a refusal is written


def plan(*findings):
    return Plan(PROFILE, "cudaMallocAsync", (), findings, {}, Settings())


def test_a_warning_stops_the_start_only_under_strict():
    warning = Finding("warn", "caching-disabled", None, "what to do")
    refuse(plan(warning))
    with pytest.raises(Refusal, match=r"^what to do \(refused because of TORCH_POOL_STRICT=1\)$"):
        refuse(plan(harden(warning)))


@pytest.mark.parametrize("code", NEVER_STRICT)
def test_shared_memory_caches_and_hooks_are_never_more_than_a_warning(code):
    refuse(plan(harden(Finding("warn", code, None, "x"))))


def test_a_refusal_is_also_written_where_kubernetes_looks(tmp_path, capfd):
    log = tmp_path / "termination-log"
    log.write_text("an older and longer message than the new one")
    report_refusal(Refusal("what happened"), "text", str(log))
    assert log.read_text() == "torch-pool: what happened\n"
    assert capfd.readouterr().err == "torch-pool: refused: what happened\n"


@pytest.mark.parametrize("log", ["/dev/full", "/proc/self", "/proc/self/mem"])
def test_a_termination_log_that_cannot_be_written_is_no_trouble(log, capfd):
    report_refusal(Refusal("what happened"), "text", log)
    assert capfd.readouterr().err == "torch-pool: refused: what happened\n"


def test_no_termination_log_is_made_and_no_link_followed(tmp_path):
    report_refusal(Refusal("x"), "text", str(tmp_path / "none"))
    (tmp_path / "target").write_text("kept")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    report_refusal(Refusal("x"), "text", str(tmp_path / "link"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "target"]
    assert (tmp_path / "target").read_text() == "kept"
