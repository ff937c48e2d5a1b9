"""The pages on launch and profiles name what there is, and nothing else."""

import re
from pathlib import Path

import pytest
import yaml
from torch_pool import refusal
from torch_pool.launch import LAUNCHED
from torch_pool.profile import load_profile
from torch_pool.profile_keys import FALLBACKS, GPU_POLICIES, READERS
from torch_pool.refusal import Refusal
from torch_pool.settings import KNOWN, LOGS

ROOT = Path(__file__).parents[2]
LAUNCH = (ROOT / "docs/launch.md").read_text()
PROFILES = (ROOT / "docs/profiles.md").read_text()
CODE = "".join(path.read_text() for path in (ROOT / "entrypoint").rglob("*.py"))


def first_column(text, heading):
    """The cells in the first column of the first table below a heading, without back-ticks."""
    table = text.partition(f"{heading}\n")[2].partition("\n|---")[2].partition("\n\n")[0]
    return [line.split("|")[1].strip().replace("`", "") for line in table.splitlines()[1:]]


def test_every_variable_of_the_code_is_explained_and_no_other():
    named = {name for cell in first_column(LAUNCH, "## Variables") for name in cell.split(", ")}
    ours = {name for name in named if name.startswith("TORCH_POOL_")}
    assert ours == {*KNOWN, LAUNCHED}
    # A name that ends with _ is a prefix.
    assert set(re.findall(r"TORCH_POOL_[A-Z_]*[A-Z]", CODE)) <= ours


def test_every_status_of_ours_is_explained():
    statuses = {value for name, value in vars(refusal).items() if name.isupper()}
    assert statuses <= {int(cell) for cell in first_column(LAUNCH, "## Exit status") if cell.isdigit()}


def test_every_way_to_log_is_explained():
    (line,) = [line for line in LAUNCH.splitlines() if line.startswith("| `TORCH_POOL_LOG`")]
    assert all(f"`{word}`" in line for word in LOGS)


def test_every_key_of_a_profile_is_explained():
    assert first_column(PROFILES, "evidence: docs/benchmarks/mine.md#infer\n```") == list(READERS)
    for key, words in (("fallback", FALLBACKS), ("gpu", GPU_POLICIES)):
        (line,) = [line for line in PROFILES.splitlines() if line.startswith(f"| `{key}`")]
        assert all(f"`{word}`" in line for word in words)


def test_the_example_is_a_profile(tmp_path):
    example = PROFILES.partition("```yaml\n")[2].partition("```")[0]
    (tmp_path / "example.yaml").write_text(example)
    profile = load_profile(str(tmp_path / "example.yaml"), str(ROOT / "entrypoint/profiles"))
    assert profile.summary == yaml.safe_load(example)["summary"]


@pytest.mark.parametrize("scalar", ["0512", "08", "1:30", "1_000"])
def test_the_traps_are_refused(tmp_path, scalar):
    (tmp_path / "trap.yaml").write_text(f"summary: x\nallocator: {{max_split_size_mb: {scalar}}}\n")
    with pytest.raises(Refusal, match=f"trap.yaml:2: {scalar}"):
        load_profile(str(tmp_path / "trap.yaml"), str(ROOT / "entrypoint/profiles"))
