import os

import pytest
from torch_pool.profile import Profile
from torch_pool.size import format_size, is_memory_cap, size_bytes
from torch_pool.surroundings import check_program, check_shm, clashing_program

PROFILE = Profile("train", "x", {"backend": "cudaMallocAsync"}, {}, {})


def test_shared_memory_that_is_too_small_is_a_warning_with_both_ways_out(tmp_path):
    """Case C18."""
    size = os.statvfs(tmp_path)
    wanted = (size.f_blocks * size.f_frsize // (1 << 30) + 1) << 30
    (finding,) = check_shm(PROFILE._replace(shm_bytes=wanted), str(tmp_path))
    assert (finding.severity, finding.code) == ("warn", "shm-small")
    assert f"profile train wants at least {wanted >> 30} GiB" in finding.message or "GiB" in finding.message
    assert f"docker run --shm-size={wanted >> 20}m" in finding.message
    assert f"emptyDir with medium: Memory mounted at {tmp_path}" in finding.message


def test_no_shared_memory_at_all_is_too_small():
    (finding,) = check_shm(PROFILE._replace(shm_bytes=1 << 30), "/no/such/shm")
    assert "/no/such/shm is 0 bytes" in finding.message


@pytest.mark.parametrize("shm_bytes", [None, 1])
def test_enough_shared_memory_is_not_worth_a_word(tmp_path, shm_bytes):
    assert check_shm(PROFILE._replace(shm_bytes=shm_bytes), str(tmp_path)) == []


@pytest.mark.parametrize(
    ("argv", "program"),
    [
        (["vllm", "serve", "x"], "vllm"),
        (["/opt/conda/bin/vllm", "serve"], "vllm"),
        (["python", "-m", "vllm.entrypoints.openai.api_server"], "vllm"),
        (["python3", "-u", "-m", "sglang.launch_server"], "sglang"),
        (["python", "/usr/bin/vllm", "serve"], "vllm"),
        (["text-generation-launcher", "--model-id", "x"], "text-generation-launcher"),
        (["python", "train.py", "vllm"], None),
        (["cat", "vllm"], None),
        (["python", "-m"], None),
        (["python"], None),
    ],
)
def test_programs_known_to_clash_are_recognised_by_their_own_name(argv, program):
    assert clashing_program(argv) == program


def test_a_known_clash_gives_one_warning_with_the_word_that_helps_and_only_under_async():
    (finding,) = check_program(["vllm", "serve"], "cudaMallocAsync")
    assert finding.message.endswith("TORCH_POOL_ALLOCATOR=native avoids that")
    assert check_program(["vllm", "serve"], "native") == []


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("20GiB", 20 << 30),
        ("512MiB", 512 << 20),
        ("1KiB", 1024),
        *(
            (text, None)
            for text in ("0GiB", "01GiB", "1GB", "GiB", "1.5GiB", "-1GiB", " 1GiB", "1 GiB", "٣GiB", "")
        ),
    ],
)
def test_a_size_is_a_whole_number_of_binary_units(text, size):
    assert size_bytes(text) == size


@pytest.mark.parametrize(
    ("text", "is_cap"),
    [
        ("0.5", True),
        ("0.05", True),
        ("20GiB", True),
        ("0.0", False),
        ("1.0", False),
        ("0.", False),
        ("50%", False),
    ],
)
def test_a_memory_cap_is_a_share_or_a_size(text, is_cap):
    assert is_memory_cap(text) is is_cap


@pytest.mark.parametrize(
    ("size", "text"), [(64 << 20, "64 MiB"), (1 << 30, "1 GiB"), (3 << 29, "1.5 GiB"), (0, "0 bytes")]
)
def test_a_size_is_shown_in_a_unit_that_fits(size, text):
    assert format_size(size) == text
