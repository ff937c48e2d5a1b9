import pytest
from torch_pool.devices import Choice, choose, find_manager, parse_spec
from torch_pool.nvml import Gpu, Mig
from torch_pool.profile import Devices
from torch_pool.refusal import Refusal

A, B = "GPU-aaaa1111", "GPU-bbbb2222"
TWO = (Gpu(0, A, "H200", 80, 10), Gpu(1, B, "H200", 80, 70))
FOUR = tuple(Gpu(n, f"GPU-{n}{n}{n}{n}", "A", 80, 80) for n in range(4))
SLICED = (Gpu(0, A, "A", None, None, (Mig("MIG-1", 1, 0, 10, 2), Mig("MIG-2", 2, 0, 10, 9))),)
ONE_FREE = Devices(pick=1, choose="most-free")
SERVE = ["python", "serve.py"]


def codes(choice):
    return [(finding.severity, finding.code) for finding in choice.findings]


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("all", Devices()),
        ("2", Devices(pick=2)),
        ("0,1", Devices(listed=("0", "1"))),
        ("1,10", Devices(listed=("1", "10"))),
        (" 1 , 0 ", Devices(listed=("1", "0"))),
        ("GPU-8a56", Devices(listed=("GPU-8a56",))),
        ("MIG-1,MIG-2", Devices(listed=("MIG-1", "MIG-2"))),
    ],
)
def test_the_devices_asked_for_are_read(text, spec):
    assert parse_spec(text) == spec


def test_a_count_is_picked_the_way_the_profile_says():
    assert parse_spec("2", "most-free") == Devices(pick=2, choose="most-free")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "none",
        "0-3",
        "0,0",
        "0,00",
        "GPU-a0,GPU-a00",
        "GPU-A,GPU-a",
        "0,GPU-a",
        "-1",
        "1,",
        "gpu-8a56",
        "²",
        "9" * 5000,
    ],
)
def test_nonsense_is_refused_with_its_value(text):
    with pytest.raises(Refusal, match=r"TORCH_POOL_DEVICES="):
        parse_spec(text)


def test_all_leaves_everything_alone():
    assert choose(Devices(), {}, FOUR, SERVE) == Choice(
        None, None, "every GPU of the container stays visible"
    )


@pytest.mark.parametrize("value", ["0,1,3,4", "all", "none", "void", "GPU-0000", "nvidia.com/gpu=0", ""])
def test_the_numbers_of_the_host_are_never_copied(value):
    environ = {"NVIDIA_VISIBLE_DEVICES": value}
    assert choose(Devices(), environ, FOUR, SERVE).visible is None
    assert choose(Devices(pick=2), environ, FOUR, SERVE)[:2] == ("0,1", "PCI_BUS_ID")


@pytest.mark.parametrize("value", ["1", "", "MIG-1,MIG-2", "nonsense"])
def test_what_the_user_made_visible_is_never_rewritten(value):
    assert choose(ONE_FREE, {"CUDA_VISIBLE_DEVICES": value}, TWO, SERVE)[:2] == (None, None)


def test_what_the_user_made_visible_is_judged():
    choice = choose(ONE_FREE, {"CUDA_VISIBLE_DEVICES": "0,5"}, TWO, SERVE)
    assert codes(choice) == [("warn", "devices-dropped")]


def test_the_gpu_with_the_most_free_memory_is_picked_as_an_index_in_pci_order():
    assert choose(ONE_FREE, {}, TWO, SERVE) == Choice("1", "PCI_BUS_ID", "the most free memory")


def test_unknown_free_memory_comes_last():
    gpus = (Gpu(0, A), Gpu(1, B, "B", 80, 1))
    assert choose(ONE_FREE, {}, gpus, SERVE).visible == "1"


def test_a_list_keeps_its_order_and_form():
    assert choose(Devices(listed=("1", "0")), {}, TWO, SERVE)[:2] == ("1,0", "PCI_BUS_ID")
    assert choose(Devices(listed=("GPU-bb", A)), {}, TWO, SERVE)[:2] == (f"{B},{A}", None)


def test_a_listed_gpu_that_is_not_there_is_refused():
    choice = choose(Devices(listed=("5",)), {}, TWO, SERVE)
    assert (choice.visible, codes(choice)) == (None, [("refuse", "gpu-absent")])


@pytest.mark.parametrize("listed", [("GPU-",), ("0", A)])
def test_a_list_that_does_not_name_one_gpu_each_is_refused(listed):
    choice = choose(Devices(listed=listed), {}, TWO, SERVE)
    assert (choice.visible, codes(choice)) == (None, [("refuse", "devices-ambiguous")])


def test_fewer_gpus_than_asked_are_taken_with_a_warning():
    choice = choose(Devices(pick=4), {}, TWO, SERVE)
    assert (choice.visible, codes(choice)) == ("0,1", [("warn", "gpu-too-few")])


def test_a_lost_gpu_is_not_picked_and_makes_indices_unsafe():
    gpus = (Gpu(0, fault="GPU is lost"), Gpu(1, B, "B", 80, 70))
    assert choose(ONE_FREE, {}, gpus, SERVE)[:2] == (B, None)


@pytest.mark.parametrize(
    ("gpus", "visible", "code"),
    [
        ((Gpu(0, fault="GPU is lost"),), None, "gpu-lost"),
        ((Gpu(0, fault="GPU is lost"), TWO[1]), B, "devices-lost"),
    ],
)
@pytest.mark.parametrize("spec", [ONE_FREE, Devices(pick=1)])
def test_a_lost_gpu_is_named_with_its_fault(gpus, visible, code, spec):
    choice = choose(spec, {}, gpus, SERVE)
    assert (choice.visible, codes(choice)) == (visible, [("warn", code)])
    assert "0 (GPU is lost)" in choice.findings[0].message


def test_a_device_order_of_the_users_own_is_kept_by_picking_uuids():
    assert choose(ONE_FREE, {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, TWO, SERVE)[:2] == (B, None)


def test_a_mig_device_is_picked_by_its_uuid():
    assert choose(ONE_FREE, {}, SLICED, SERVE)[:2] == ("MIG-2", None)


def test_several_mig_devices_cannot_be_picked_for_one_process():
    choice = choose(Devices(pick=2), {}, SLICED, SERVE)
    assert (choice.visible, codes(choice)) == ("MIG-1", [("warn", "devices-mig")])


def test_whole_gpus_are_preferred_to_mig_devices_when_several_are_asked_for():
    assert choose(Devices(pick=2), {}, (*SLICED, Gpu(1, B), Gpu(2, "GPU-c")), SERVE).visible == f"{B},GPU-c"


def test_without_gpus_there_is_nothing_to_pick():
    assert choose(ONE_FREE, {}, (), SERVE)[:2] == (None, None)


def test_without_an_answer_of_nvml_the_first_ones_are_taken_with_a_warning():
    choice = choose(Devices(pick=2, choose="most-free"), {}, None, SERVE)
    assert (choice[:2], codes(choice)) == (("0,1", "PCI_BUS_ID"), [("warn", "devices-unknown")])
    assert choose(Devices(listed=("GPU-a",)), {}, None, SERVE)[:2] == ("GPU-a", None)


def test_where_only_the_number_of_gpus_is_known_indices_are_checked_and_uuids_believed():
    unnamed = (Gpu(0), Gpu(1))
    choice = choose(ONE_FREE, {}, unnamed, SERVE)
    assert (choice[:2], codes(choice)) == (("0", "PCI_BUS_ID"), [("warn", "devices-unknown")])
    assert codes(choose(Devices(listed=("2",)), {}, unnamed, SERVE)) == [("refuse", "gpu-absent")]
    assert choose(Devices(listed=("1",)), {}, unnamed, SERVE)[:2] == ("1", "PCI_BUS_ID")
    assert choose(Devices(listed=("GPU-a",)), {}, unnamed, SERVE)[:2] == ("GPU-a", None)


@pytest.mark.parametrize(
    ("command", "environ", "manager"),
    [
        (["torchrun", "--nproc-per-node=2", "t.py"], {}, "torchrun"),
        (["/opt/venv/bin/accelerate", "launch", "t.py"], {}, "accelerate"),
        (["python", "-m", "torch.distributed.run", "t.py"], {}, "torch.distributed.run"),
        (["python3", "-m", "accelerate.commands.launch", "t.py"], {}, "accelerate.commands.launch"),
        (["deepspeed", "t.py"], {}, "deepspeed"),
        (["uv", "run", "torchrun", "t.py"], {}, "torchrun"),
        (["bash", "-lc", "cd /w && exec torchrun t.py"], {}, "torchrun"),
        (["python", "t.py"], {"SLURM_JOB_ID": "7"}, "Slurm"),
        (["python", "t.py"], {"SLURM_PROCID": "0"}, "Slurm"),
        (["python", "t.py"], {"OMPI_COMM_WORLD_RANK": "0"}, "Open MPI"),
        (["python", "t.py"], {"RAY_JOB_ID": "1"}, "Ray"),
        (["python", "t.py"], {"LOCAL_RANK": "0"}, "a process launcher (LOCAL_RANK is set)"),
        (["python", "t.py", "torchrun"], {}, None),
        (["python", "-m", "http.server"], {}, None),
        ([], {}, None),
    ],
)
def test_who_gives_processes_their_gpus_is_recognised(command, environ, manager):
    assert find_manager(environ, command) == manager


def test_nothing_is_picked_under_torchrun_and_the_user_is_told():
    choice = choose(ONE_FREE, {}, TWO, ["torchrun", "t.py"])
    assert (choice[:2], codes(choice)) == ((None, None), [("warn", "devices-left-alone")])
