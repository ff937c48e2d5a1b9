import os

from scripts.bases import load_table
from scripts.builder import Builder, run_build
from scripts.engine import Engine
from scripts.inputs import build_inputs
from scripts.machine import Machine
from scripts.settings import resolve_settings
from tests.scripts.test_inputs import MACHINE, SECRETS

NOTHING = Machine((), None, None, (), ())


def test_no_secret_is_in_the_arguments_of_the_process_that_builds(program, tmp_path, monkeypatch):
    monkeypatch.setattr("scripts.builder.BUILD", tmp_path)
    docker = program("docker")
    settings = resolve_settings({}, "")
    inputs = build_inputs(MACHINE, os.environ)
    for store in (True, False):
        engine = Engine("docker", "0.13", "", image_store=store)
        builder = Builder(settings, engine, None, load_table(), MACHINE, inputs)
        run_build(builder, "torch-pool-candidate:infer", tmp_path / "Dockerfile", tmp_path, ["--label=a=b c"])
    for call in docker.calls:
        assert not [word for word in call.arguments for secret in SECRETS if secret in word]
        assert all(any(secret in value for value in call.environ.values()) for secret in SECRETS)
        assert "--platform=linux/amd64" in call.arguments
        assert "--label=a=b c" in call.arguments
        assert call.arguments[-1] == str(tmp_path)
    # Compressing what stays in this engine would cost minutes.
    assert "--output=type=image,name=torch-pool-candidate:infer,compression=uncompressed,unpack=true" in (
        docker.calls[0].arguments
    )
    assert "--output=type=docker,name=torch-pool-candidate:infer" in docker.calls[1].arguments


def test_no_cache_builds_every_layer_anew(program, tmp_path, monkeypatch):
    monkeypatch.setattr("scripts.builder.BUILD", tmp_path)
    docker = program("docker")
    for value in ("0", "1"):
        settings = resolve_settings({"NO_CACHE": value}, "")
        engine = Engine("docker", "0.13", "")
        builder = Builder(settings, engine, None, load_table(), NOTHING, build_inputs(NOTHING, os.environ))
        run_build(builder, "torch-pool-candidate:infer", tmp_path / "Dockerfile", tmp_path, [])
    assert ["--no-cache" in call.arguments for call in docker.calls] == [False, True]
