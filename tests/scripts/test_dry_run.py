"""DRY_RUN=1 of the commands that only measure; the others' own tests have theirs."""

import pytest


@pytest.mark.parametrize(
    ("command", "steps"),
    [
        (
            ["size", "PROFILE=infer"],
            ["compress the layers of torch-pool:infer with zstd as torch-pool-size:infer"],
        ),
        (
            ["bench-build"],
            ["copy the tracked files", "make .venv there", "build bench.invalid/torch-pool:infer"],
        ),
    ],
)
def test_a_dry_run_says_what_it_would_do_and_asks_no_engine(checkout, program, command, steps):
    docker = program("docker")
    done = checkout.make(*command, "DRY_RUN=1")
    said = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (0, "")
    assert all(line.startswith("would ") for line in said)
    for line, step in zip(said, steps, strict=False):
        assert line.startswith(f"would {step}")
    assert docker.calls == []
    assert not (checkout.root / "build").exists()
