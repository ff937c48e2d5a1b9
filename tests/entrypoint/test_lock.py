import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from torch_pool.devices import choose, hold_earlier
from torch_pool.lock import claim
from torch_pool.nvml import Gpu
from torch_pool.profile import Devices

PACKAGE = str(Path(__file__).parents[2] / "entrypoint")
GPUS = tuple(Gpu(n, f"GPU-{n}", "A", 80, 80) for n in range(3))

# A launch in small: claim, print the claim, become another program that ends when its stdin does.
START = """
import os, sys
sys.path.insert(0, sys.argv[1])
from torch_pool.lock import claim
claimed = claim(sys.argv[2], sys.argv[4:], int(sys.argv[3]))
os.execvp("sh", ["sh", "-c", f"echo '{' '.join(claimed)}'; read line"])
"""


def start(directory, count=1):
    return subprocess.Popen(
        [
            sys.executable,
            "-I",
            "-S",
            "-c",
            START,
            PACKAGE,
            directory,
            str(count),
            *[gpu.uuid for gpu in GPUS],
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def descriptors():
    return {int(link.name) for link in Path("/proc/self/fd").iterdir()}


@pytest.fixture
def held(tmp_path):
    """Claims of this process, whose descriptors a test must not leave open."""
    before = descriptors()
    yield lambda uuids, count: claim(str(tmp_path), uuids, count)
    for descriptor in {number for number in descriptors() - before if number >= 64}:
        os.close(descriptor)


def test_starts_at_the_same_time_never_share_a_gpu(tmp_path):
    commands = [start(tmp_path) for _ in range(6)]
    claims = [command.stdout.readline().strip() for command in commands]
    [command.communicate() for command in commands]
    assert sorted(claims) == ["", "", "", "GPU-0", "GPU-1", "GPU-2"]


def test_starts_that_want_two_of_three_gpus_do_not_block_each_other(tmp_path):
    commands = [start(tmp_path, 2) for _ in range(2)]
    claims = [command.stdout.readline().strip() for command in commands]
    [command.communicate() for command in commands]
    assert sorted(claims) == ["", "GPU-0 GPU-1"]


def test_a_gpu_is_held_across_exec_and_free_when_the_command_has_ended(tmp_path):
    first = start(tmp_path, 3)
    assert first.stdout.readline() == "GPU-0 GPU-1 GPU-2\n"
    assert start(tmp_path).communicate()[0] == "\n"
    first.communicate()
    assert start(tmp_path).communicate()[0] == "GPU-0\n"


def test_a_gpu_is_free_when_the_command_is_killed(tmp_path):
    first = start(tmp_path, 3)
    first.stdout.readline()
    first.kill()
    first.communicate()
    assert start(tmp_path, 3).communicate()[0] == "GPU-0 GPU-1 GPU-2\n"


def test_the_same_gpu_listed_twice_is_claimed_once(held):
    assert held(["GPU-0", "GPU-0"], 2) == ()


def test_lock_files_are_for_every_user_whatever_the_umask(tmp_path, held):
    before = os.umask(0o077)
    try:
        held(["GPU-0"], 1)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "GPU-0.lock").stat().st_mode) == 0o666


def test_a_mig_device_of_the_older_form_has_a_file_name(tmp_path, held):
    assert held(["MIG-GPU-a/1/0"], 1) == ("MIG-GPU-a/1/0",)
    assert [file.name for file in tmp_path.iterdir()] == ["MIG-GPU-a_1_0.lock"]


def test_no_symbolic_link_is_followed(tmp_path, held):
    (tmp_path / "target").write_text("precious")
    (tmp_path / "GPU-0.lock").symlink_to("target")
    with pytest.raises(OSError, match="symbolic link"):
        held(["GPU-0"], 1)


def test_only_regular_files_are_locked(tmp_path, held):
    os.mkfifo(tmp_path / "GPU-0.lock")
    with pytest.raises(OSError, match="not a regular file"):
        held(["GPU-0"], 1)


def test_a_failure_lets_go_of_what_was_claimed(tmp_path, held):
    (tmp_path / "GPU-1.lock").symlink_to("nowhere")
    with pytest.raises(OSError, match="symbolic link"):
        held(["GPU-0", "GPU-1"], 2)
    assert held(["GPU-0"], 1) == ("GPU-0",)


def test_the_descriptor_is_inherited_and_out_of_the_way_of_shell_scripts(held):
    before = descriptors()
    held(["GPU-0"], 1)
    (descriptor,) = descriptors() - before
    assert descriptor >= 64
    assert os.get_inheritable(descriptor)


def test_a_pick_skips_what_another_container_holds(tmp_path, held):
    held(["GPU-0"], 1)
    choice = choose(Devices(pick=2), {}, GPUS, ["python"], str(tmp_path))
    assert choice[:3] == ("1,2", "PCI_BUS_ID", f"the first, held in {tmp_path}")


def test_an_earlier_pick_that_nobody_holds_is_locked(tmp_path, held):
    before = descriptors()
    assert hold_earlier("1", GPUS, str(tmp_path)) == ()
    assert len(descriptors() - before) == 1
    assert held(["GPU-1"], 1) == ()


def test_an_earlier_pick_that_is_held_stays(tmp_path, held):
    """The launch around this one holds it; a Python program closes the descriptor for what it starts."""
    held(["GPU-1"], 1)
    before = descriptors()
    assert hold_earlier("1", GPUS, str(tmp_path)) == ()
    assert descriptors() == before


def test_an_earlier_pick_that_cannot_be_locked_is_refused(tmp_path):
    assert [f.code for f in hold_earlier("1", GPUS, str(tmp_path / "absent"))] == ["lock-failed"]


def test_a_pick_is_refused_when_other_containers_hold_too_many(tmp_path, held):
    held(["GPU-0", "GPU-1"], 2)
    choice = choose(Devices(pick=2), {}, GPUS, ["python"], str(tmp_path))
    assert (choice.visible, [(f.severity, f.code) for f in choice.findings]) == (
        None,
        [("refuse", "gpu-held")],
    )


@pytest.mark.parametrize(
    ("gpus", "directory", "code"), [(GPUS, "absent", "lock-failed"), (None, ".", "lock-unknown")]
)
def test_a_lock_that_cannot_be_had_is_refused_rather_than_forgotten(tmp_path, gpus, directory, code):
    choice = choose(Devices(pick=1), {}, gpus, ["python"], str(tmp_path / directory))
    assert (choice.visible, [(f.severity, f.code) for f in choice.findings]) == (None, [("refuse", code)])
