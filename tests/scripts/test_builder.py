import os

import pytest

from scripts.bases import load_table
from scripts.builder import Builder, Output, run_build
from scripts.engine import Engine
from scripts.inputs import build_inputs
from scripts.machine import Machine
from scripts.settings import resolve_settings
from tests.scripts.test_inputs import MACHINE, SECRETS

NOTHING = Machine((), None, None, (), ())


@pytest.fixture(autouse=True)
def build_folder(tmp_path, monkeypatch):
    """Logs go below tmp_path."""
    monkeypatch.setattr("scripts.builder.BUILD", tmp_path)


def test_no_secret_is_in_the_arguments_of_the_process_that_builds(program, tmp_path):
    docker = program("docker")
    settings = resolve_settings({}, "")
    inputs = build_inputs(MACHINE, os.environ)
    for store in (True, False):
        engine = Engine("docker", "0.13", "", image_store=store)
        builder = Builder(settings, engine, None, load_table(), MACHINE, inputs)
        run_build(
            builder,
            Output("torch-pool-candidate:infer"),
            tmp_path / "Dockerfile",
            tmp_path,
            ["--label=a=b c"],
        )
    for call in docker.calls:
        assert not [word for word in call.arguments for secret in SECRETS if secret in word]
        assert all(any(secret in value for value in call.environ.values()) for secret in SECRETS)
        assert "--platform=linux/amd64" in call.arguments
        assert "--label=a=b c" in call.arguments
        assert call.arguments[-1] == str(tmp_path)


@pytest.mark.parametrize(
    ("image_store", "compression", "output"),
    [
        # Compressing what stays in this engine would cost minutes.
        (True, "", "type=image,name=a:b,compression=uncompressed,unpack=true"),
        (True, "zstd", "type=image,name=a:b,compression=zstd,force-compression=true,unpack=false"),
        (False, "", "type=docker,name=a:b"),
    ],
)
def test_a_build_goes_into_the_engine_as_its_store_wants_it(
    program, tmp_path, image_store, compression, output
):
    docker = program("docker")
    engine = Engine("docker", "0.13", "", image_store=image_store)
    inputs = build_inputs(NOTHING, os.environ)
    builder = Builder(resolve_settings({}, ""), engine, None, load_table(), NOTHING, inputs)
    run_build(builder, Output("a:b", compression), tmp_path / "Dockerfile", tmp_path, [])
    assert f"--output={output}" in docker.calls[0].arguments
    assert (tmp_path / "logs" / "a-b.log").exists()


def test_no_cache_builds_every_layer_anew(program, tmp_path):
    docker = program("docker")
    for value in ("0", "1"):
        settings = resolve_settings({"NO_CACHE": value}, "")
        engine = Engine("docker", "0.13", "")
        builder = Builder(settings, engine, None, load_table(), NOTHING, build_inputs(NOTHING, os.environ))
        run_build(builder, Output("torch-pool-candidate:infer"), tmp_path / "Dockerfile", tmp_path, [])
    assert ["--no-cache" in call.arguments for call in docker.calls] == [False, True]
