import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
from torch_pool.refusal import Refusal

from scripts.build import gate_stamp, image_arguments, print_plan, refuse_foreign_tag, require_platform
from scripts.images import load_images
from scripts.labels import Commit
from scripts.settings import Setting, resolve_settings
from tests.scripts.passing import READY_BASE
from tests.scripts.standin import client_with

IMAGES = load_images()
HOSTILE = ["", "nope", "a b", "../x", ";id", "$(touch made)", "`touch made`", "infer\nRUN id", "--help", "'"]
PLAN = (
    "plan: torch-pool:infer from docker.io/pytorch/pytorch:2.6.0-cuda12.4-cudnn9-runtime or "
    "the wheels base, built here, conf backend:cudaMallocAsync"
)


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize("place", ["command line", "shell"])
def test_a_hostile_profile_is_one_line_with_the_names_and_no_docker(checkout, program, place, value):
    docker = program("docker")
    words, environ = ([f"PROFILE={value}"], {}) if place == "command line" else ([], {"PROFILE": value})
    done = checkout.make("build", *words, **environ)
    assert done.returncode == 2
    lines = [line for line in done.stderr.splitlines() if not line.startswith("make: ")]
    assert len(lines) == 1
    assert re.fullmatch(r"torch-pool: PROFILE is .*Known: infer, llm-finetune, nlp, shared, train", lines[0])
    assert (done.stdout, docker.calls, (checkout.root / "made").exists()) == ("", [], False)


def test_a_missing_profile_is_one_line_with_an_example(checkout, program):
    docker = program("docker")
    done = checkout.make("build")
    assert "torch-pool: PROFILE is not set; say for example PROFILE=infer." in done.stderr
    assert (done.returncode, docker.calls) == (2, [])


@pytest.mark.parametrize("exported", [{}, {"CUDA_VERSION": "11.2", "TAG": "latest", "PYTORCH_TAG": "1.0"}])
def test_a_dry_run_prints_the_plan_whatever_else_is_exported_and_calls_no_docker(checkout, program, exported):
    docker = program("docker")
    done = checkout.make("build", "PROFILE=infer", "DRY_RUN=1", **exported)
    assert (done.returncode, done.stdout, docker.calls) == (0, "", [])
    assert [line for line in done.stderr.splitlines() if line.startswith("plan: ")] == [PLAN]
    assert "11.2" not in done.stderr


def test_every_value_is_printed_with_its_origin_before_the_plan(checkout, program):
    program("docker")
    (checkout.root / ".env").write_text("BASE=wheels\nREGISTRY=r.example/team\n")
    done = checkout.make("build", "PROFILE=infer", "DRY_RUN=1", BASE="cuda11.8-devel")
    rows = [re.split(r"\s{2,}", line) for line in done.stderr.splitlines()]
    assert ["PROFILE", "infer", "command line"] in rows
    assert ["BASE", "cuda11.8-devel", "shell, overrides wheels in .env"] in rows
    assert ["REGISTRY", "r.example/team", ".env"] in rows
    assert rows[-1][0].startswith(
        "plan: r.example/team/torch-pool:infer from docker.io/pytorch/pytorch:2.6.0-cuda11.8"
    )


def test_a_name_in_env_that_nobody_reads_is_refused(checkout, program):
    docker = program("docker")
    (checkout.root / ".env").write_text("CUDA_VERSION=10.2\n")
    done = checkout.make("build", "PROFILE=infer", CUDA_VERSION="11.2")
    assert (done.returncode, docker.calls) == (2, [])
    assert "torch-pool: .env line 1 sets CUDA_VERSION, which is no setting" in done.stderr


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            "BASE=cuda11.2-runtime",
            "BASE is cuda11.2-runtime (from the command line), no base and no reference",
        ),
        ("BASE=a b", "BASE is 'a b' (from the command line), no base and no reference"),
        (
            "BASE_REGISTRY=https://m.example",
            "BASE_REGISTRY is https://m.example (from the command line), but must",
        ),
        ("REGISTRY=Team", "REGISTRY is Team (from the command line), but must be a registry"),
    ],
)
def test_a_base_or_registry_that_cannot_be_is_refused_before_docker(checkout, program, given, message):
    docker = program("docker")
    done = checkout.make("build", "PROFILE=infer", given)
    assert (done.returncode, docker.calls) == (2, [])
    assert f"torch-pool: {message}" in done.stderr
    assert "Traceback" not in done.stderr


def test_build_all_plans_every_image(checkout, program):
    docker = program("docker")
    done = checkout.make("build-all", "DRY_RUN=1", "BASE=wheels")
    planned = re.findall(r"^plan: torch-pool:(\S+) from the wheels base", done.stderr, re.MULTILINE)
    assert (done.returncode, planned, docker.calls) == (0, list(IMAGES), [])


def test_the_plan_goes_to_stderr(capsys):
    print_plan(IMAGES["infer"], resolve_settings({}, ""))
    assert capsys.readouterr() == ("", f"{PLAN}\n")


@pytest.mark.parametrize("labels", [{}, {"maintainer": "x"}])
def test_a_name_that_something_else_has_is_not_taken(labels):
    builder = SimpleNamespace(client=client_with({"torch-pool:infer": labels}))
    with pytest.raises(Refusal, match=r"^the name torch-pool:infer is taken by an image that is not ours; "):
        refuse_foreign_tag(builder, "torch-pool:infer")


@pytest.mark.parametrize("known", [{}, {"torch-pool:infer": {"io.torch-pool.profile": "infer"}}])
def test_a_free_name_and_one_of_ours_are_taken(known):
    refuse_foreign_tag(SimpleNamespace(client=client_with(known)), "torch-pool:infer")


def test_an_image_is_built_on_the_base_of_this_engine_with_the_time_of_the_commit():
    arguments = image_arguments(Commit("a" * 40, 1_700_000_000, dirty=False), READY_BASE, {"a.b": "c d"})
    assert arguments[:3] == [
        "--build-context=base=docker-image://torch-pool-base:wheels",
        "--build-arg=NVIDIA_REQUIRE_CUDA=cuda>=12.0",
        "--build-arg=SOURCE_DATE_EPOCH=1700000000",
    ]
    assert "--label=a.b=c d" in arguments


@pytest.mark.parametrize(
    "value", ["linux/arm64", "linux/amd64,linux/arm64", "linux/amd64/v2", "windows/amd64", "x"]
)
def test_a_platform_that_no_base_is_made_for_is_refused_with_those_that_there_are(value):
    with pytest.raises(Refusal, match=r"made for linux/amd64$") as refusal:
        require_platform(READY_BASE.base, Setting("PLATFORM", value, "command line"))
    assert refusal.value.status == 64


def test_what_an_image_must_pass_is_part_of_the_stamp_that_it_passed():
    image = load_images()["infer"]
    asked_more = replace(image, imports=("torchvision",))
    assert gate_stamp(image, "sha256:1") == gate_stamp(image, "sha256:1")
    assert (
        len(
            {gate_stamp(image, "sha256:1"), gate_stamp(asked_more, "sha256:1"), gate_stamp(image, "sha256:2")}
        )
        == 3
    )
