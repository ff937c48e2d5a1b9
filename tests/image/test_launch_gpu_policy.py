"""What a launch makes of GPUs, in real containers: device nodes that stand for GPUs, and a driver in C."""

import pytest

from tests.entrypoint.fake_library import build_library
from tests.image.conftest import printed

pytestmark = pytest.mark.image

LIBRARIES = "/usr/lib/x86_64-linux-gnu"
GIB = 1 << 30
VISIBLE = ["sh", "-c", 'echo "${CUDA_VISIBLE_DEVICES-unset}"']
NO_GPU = "warning: no GPU: no NVIDIA driver"


def uuid(number):
    return f"GPU-{number}{number}{number}{number}0000-0000-0000-0000-000000000000"


@pytest.fixture(scope="session")
def driver(tmp_path_factory):
    """libcuda and libnvidia-ml of the host, as the container toolkit mounts them."""
    folder = tmp_path_factory.mktemp("driver")
    folder.chmod(0o755)
    return {name: build_library(name, folder) for name in ("cuda", "nvml")}


@pytest.fixture
def gpus(driver, tmp_path):
    """Mounts and environment of a container that was given some GPUs of a host."""

    def gpus(count=1, *, first=0, nvml=True, inventory=None, cuda="H200|1|1"):
        # Each node has a file of its own, because the SDK names mounts by their source.
        nodes = {tmp_path / f"node{n}": f"/dev/nvidia{n}" for n in range(first, first + count)}
        for file in nodes:
            file.touch()
        listed = [f"{uuid(n)}|H200|{80 * GIB}|{(10 + n) * GIB}" for n in range(count)]
        libraries = {driver["cuda"]: f"{LIBRARIES}/libcuda.so.1"}
        if nvml:
            libraries[driver["nvml"]] = f"{LIBRARIES}/libnvidia-ml.so.1"
        environment = {
            "FAKE_GPUS": "\n".join(listed) if inventory is None else inventory,
            "FAKE_CUDA": "\n".join([cuda] * count),
        }
        return {"volumes": {**nodes, **libraries}, "environment": environment}

    return gpus


def with_environment(options, **environment):
    return {**options, "environment": {**options["environment"], **environment}}


# The policy


def test_a_wanted_gpu_that_is_missing_is_one_warning(image, run):
    ended = run(image, "echo", "X")
    assert (ended.status, ended.stdout, ended.stderr.count(NO_GPU)) == (0, "X\n", 1)


def test_strict_refuses_to_start_without_a_gpu(run):
    said = "refused: no GPU: no NVIDIA driver is to be seen"
    ended = run("infer", "echo", "X", environment={"TORCH_POOL_STRICT": "1"}, expects=[said])
    assert (ended.status, ended.stdout) == (69, "")


@pytest.mark.parametrize(("policy", "status"), [("required", 69), ("none", 0)])
def test_the_policy_of_a_profile_decides(run, folder, policy, status):
    (folder / "mine.yaml").write_text(f"summary: x\nextends: infer\ngpu: {policy}\n")
    environment = {"TORCH_POOL_PROFILE": "/p/mine.yaml"}
    expects = ["refused: no GPU: "] if status else []
    ended = run("infer", "true", environment=environment, volumes={folder: "/p"}, expects=expects)
    assert ended.status == status
    assert NO_GPU not in ended.stderr


def test_with_a_gpu_nothing_is_said_and_nothing_hidden(run, gpus):
    ended = run("infer", *VISIBLE, **gpus(2))
    assert ended.stdout == "unset\n"
    assert len(ended.stderr.splitlines()) == 1


@pytest.mark.parametrize("code", [803, 804, 999])
@pytest.mark.parametrize("allocator", ["async", "native"])
def test_what_cuda_refuses_is_a_missing_gpu_where_one_is_required(run, gpus, tmp_path, code, allocator):
    """Case C20: a container that cannot use its GPU must not go on as if it could."""
    (tmp_path / "mine.yaml").write_text("summary: x\nextends: infer\ngpu: required\n")
    words = {"TORCH_POOL_PROFILE": "/p/mine.yaml", "TORCH_POOL_ALLOCATOR": allocator}
    options = with_environment(gpus(), FAKE_CUDA_INIT=str(code), **words)
    options["volumes"][tmp_path / "mine.yaml"] = "/p/mine.yaml"
    ended = run("infer", "echo", "X", **options, expects=[f"(CUDA error {code} from cuInit)"])
    assert (ended.status, ended.stdout) == (69, "")


def test_what_cuda_refuses_is_a_warning_where_a_gpu_is_wanted(run, gpus):
    """Case C20."""
    options = with_environment(gpus(), FAKE_CUDA_INIT="803")
    ended = run("infer", "sh", "-c", "echo ${LD_LIBRARY_PATH-unset}", **options, expects=["CUDA error 803"])
    assert ended.stdout == "unset\n"


def test_a_driver_that_hangs_delays_the_start_by_two_seconds_and_no_more(run, gpus):
    expects = ["whether the GPUs have memory pools is unknown, the allocator stays"]
    ended = run("infer", "echo", "X", **with_environment(gpus(), FAKE_HANG="1"), expects=expects)
    assert ended.stdout == "X\n"


# The fallback


def test_a_gpu_without_memory_pools_takes_the_fallback(run, gpus):
    said = (
        "GPU 0 (GRID) has no memory pools, which cudaMallocAsync needs: the allocator is expandable instead"
    )
    ended = run("infer", "printenv", "PYTORCH_CUDA_ALLOC_CONF", **gpus(cuda="GRID|0|1"), expects=[said])
    assert ended.stdout == "expandable_segments:True\n"


def test_strict_refuses_the_fallback(run, gpus):
    options = with_environment(gpus(cuda="GRID|0|1"), TORCH_POOL_STRICT="1")
    assert run("infer", "true", **options, expects=["refused: GPU 0 (GRID) has no memory pools"]).status == 78


def test_who_insists_on_async_keeps_it(run, gpus):
    options = with_environment(gpus(cuda="GRID|0|1"), TORCH_POOL_ALLOCATOR="async")
    ended = run("infer", "printenv", "PYTORCH_CUDA_ALLOC_CONF", **options, expects=["has no memory pools"])
    assert ended.stdout == "backend:cudaMallocAsync\n"


# CUDA_VISIBLE_DEVICES of the user


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("1", "index 1 but only 1 GPU in this container (numbered from 0)"),
        ("0,5", "asks for 2 devices, CUDA will see 1: index 5 but only 1 GPU"),
        ("0,0", "index 0 is listed twice, and CUDA then refuses to start (error 101)"),
        ("", "hides every GPU from CUDA: an empty value means none"),
    ],
)
@pytest.mark.parametrize("nvml", [True, False], ids=["NVML", "no NVML"])
def test_a_value_that_cuda_reads_otherwise_is_kept_and_explained(run, gpus, value, said, nvml):
    """Cases C14 and C31: GPU 1 of the host is number 0 of the container."""
    options = with_environment(gpus(1, first=1, nvml=nvml), CUDA_VISIBLE_DEVICES=value)
    ended = run("infer", *VISIBLE, **options, expects=[said])
    assert ended.stdout == f"{value}\n"


def test_a_value_that_leaves_no_gpu_is_refused_where_one_is_required(run, gpus):
    """Case C14."""
    options = with_environment(gpus(), CUDA_VISIBLE_DEVICES="1", TORCH_POOL_STRICT="1")
    said = "refused: CUDA_VISIBLE_DEVICES='1' hides every GPU from CUDA: index 1 but only 1 GPU"
    assert run("infer", "true", **options, expects=[said]).status == 69


@pytest.mark.parametrize("value", ["0,1,3,4", "all", "none", "void", uuid(0), "nvidia.com/gpu=0", ""])
def test_the_numbers_of_the_host_are_never_copied(run, gpus, value):
    """Case C15."""
    options = with_environment(gpus(4), NVIDIA_VISIBLE_DEVICES=value)
    assert run("infer", *VISIBLE, **options).stdout == "unset\n"
    assert run("infer", *VISIBLE, **with_environment(options, TORCH_POOL_DEVICES="2")).stdout == "0,1\n"


@pytest.mark.parametrize("value", ["MIG-1111,MIG-2222", f"MIG-{uuid(0)}/1/0,MIG-{uuid(0)}/2/0"])
def test_of_two_mig_devices_one_is_usable_and_both_stay_named(run, gpus, value):
    """Case C13."""
    sliced = f"{uuid(0)}|A100|{40 * GIB}|0|mig\nmig MIG-1111|{10 * GIB}|1|1|0\nmig MIG-2222|{10 * GIB}|1|2|0"
    options = with_environment(gpus(inventory=sliced), CUDA_VISIBLE_DEVICES=value)
    ended = run("infer", *VISIBLE, **options, expects=["asks for 2 devices, CUDA will see 1"])
    assert ended.stdout == f"{value}\n"


@pytest.mark.parametrize("value", ["", "2"])
def test_a_scheduler_may_change_the_devices_of_a_worker(run, gpus, value):
    """Case C31: nothing of ours sets them again; the doctor names both numbers."""
    script = f'export CUDA_VISIBLE_DEVICES={value}; echo "$CUDA_VISIBLE_DEVICES"; torch-pool doctor'
    ended = run("infer", "sh", "-c", script, **gpus(4))
    assert ended.stdout.startswith(f"{value}\n")
    hidden = (
        "hidden by CUDA_VISIBLE_DEVICES='' set in this process (an empty value means none), container has 4"
    )
    assert "container has 4 GPUs" in ended.stdout
    assert (hidden.partition(" (")[0] in ended.stdout) == (value == "")


# Picking


def test_the_shared_profile_picks_the_gpu_with_the_most_free_memory(run, gpus):
    show = ["sh", "-c", "echo $CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER"]
    assert run("shared", *show, **gpus(3)).stdout == "2 PCI_BUS_ID\n"


@pytest.mark.parametrize("command", ["torchrun", "accelerate", "deepspeed"])
def test_nothing_is_picked_for_a_program_that_gives_its_processes_their_gpus(run, gpus, command):
    expects = [f"warning: the devices asked for are not applied: {command} gives its processes their GPUs"]
    script = ["sh", "-c", f'echo "${{CUDA_VISIBLE_DEVICES-unset}}"; true || {command}']
    assert run("shared", *script, **gpus(2)).stdout == "unset\n"
    asked = with_environment(gpus(2), TORCH_POOL_DEVICES="1")
    assert run("shared", *script, **asked, expects=expects).stdout == "unset\n"


def test_containers_that_share_a_lock_directory_pick_different_gpus(run, started, gpus, tmp_path):
    locks = tmp_path / "locks"
    locks.mkdir()
    locks.chmod(0o1777)
    options = with_environment(gpus(2), TORCH_POOL_LOCK_DIR="/locks", TORCH_POOL_DEVICES="1")
    options["volumes"][locks] = "/locks"
    script = 'echo "up $CUDA_VISIBLE_DEVICES"; exec sleep 600'
    containers = [started("infer", "sh", "-c", script, user=user, **options) for user in ("955", "12345:0")]
    picked = [printed(container, "up").strip() for container in containers]
    assert sorted(picked) == ["up 0", "up 1"]
    assert run("infer", "true", **options, expects=["refused: 1 wanted, fewer are free"]).status == 69
    freed = containers[0].get_wrapped_container()
    freed.kill()
    freed.wait()
    assert run("infer", *VISIBLE, **options).stdout == picked[0].removeprefix("up ") + "\n"
