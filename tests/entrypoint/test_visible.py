import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch_pool.nvml import Gpu, Mig
from torch_pool.visible import judge, order_gpus, parse_visible

RECORDED = json.loads((Path(__file__).parent.parent / "data" / "cuda_visible_devices.json").read_text())
A, B = "GPU-aaaa1111-0000-0000-0000-000000000000", "GPU-aabb2222-0000-0000-0000-000000000000"
TWO = (Gpu(0, A, "A", 24, 8), Gpu(1, B, "A", 8, 8))
UNEQUAL = (TWO[0], TWO[1]._replace(name="B"))
BY_BUS = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
FOUR = tuple(Gpu(n, f"GPU-{n}{n}{n}{n}") for n in range(4))
SLICED = (Gpu(0, A, "A", None, None, (Mig("MIG-1111-a", 1, 0), Mig("MIG-2222-b", 2, 0))),)


def messages(value, gpus, **environ):
    return [finding.message for finding in judge({"CUDA_VISIBLE_DEVICES": value, **environ}, gpus)]


@pytest.mark.parametrize(
    "answer",
    [answer for answer in RECORDED["answers"] if answer["value"] is not None],
    ids=lambda answer: repr(answer["value"]),
)
def test_a_value_means_what_the_real_driver_made_of_it(answer):
    gpus = (Gpu(0, RECORDED["uuid"], "H200", 8, 8),)
    assert len(parse_visible(answer["value"], gpus).seen) == (answer["count"] or 0)


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        ("1,0", ("1", "0")),
        ("0,2,-1,1", ("0", "2")),
        ("0,99,1", ("0",)),
        ("1gpu2,2ampere", ("1", "2")),
        ("0,1,0", ()),
        ("3", ("3",)),
        ("4", ()),
    ],
)
def test_several_gpus_follow_the_order_of_the_list_up_to_the_first_bad_item(value, seen):
    assert parse_visible(value, FOUR).seen == seen


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        (A, (A,)),
        (f"{B},{A}", (B, A)),
        ("GPU-aabb", (B,)),
        ("GPU-aa", ()),
        (f"{A}, {B}", (A,)),
        (f"{A},0", (A,)),
        (A.lower(), ()),
    ],
)
def test_uuids_may_be_shortened_while_they_name_one_gpu(value, seen):
    assert parse_visible(value, TWO).seen == seen


@pytest.mark.parametrize("value", ["0,1", " 0 , 1 ", "1", "0,1,", A, f"{B},{A}", "GPU-aabb"])
def test_nothing_is_said_about_a_good_value(value):
    assert messages(value, TWO) == []


def test_nothing_is_said_when_the_variable_is_unset():
    assert judge({}, TWO) == ()


def test_an_index_that_only_the_host_has_is_explained():
    (message,) = messages("1", TWO[:1])
    assert message == (
        "CUDA_VISIBLE_DEVICES='1' hides every GPU from CUDA: "
        "index 1 but only 1 GPU in this container (numbered from 0)"
    )


def test_what_is_dropped_is_counted_and_explained():
    (message,) = messages("0,5,1", TWO)
    assert message == (
        "CUDA_VISIBLE_DEVICES='0,5,1' asks for 3 devices, CUDA will see 1: "
        "index 5 but only 2 GPUs in this container (numbered from 0)"
    )


def test_a_repeated_device_is_said_to_stop_cuda():
    assert "listed twice, and CUDA then refuses to start (error 101)" in messages("0,0", TWO)[0]


def test_a_value_that_repeats_the_numbers_of_the_host_says_so():
    (message,) = messages("0,1,3,4", FOUR, NVIDIA_VISIBLE_DEVICES="0,1,3,4")
    assert message == (
        "CUDA_VISIBLE_DEVICES='0,1,3,4' asks for 4 devices, CUDA will see 3: "
        "index 4 but only 4 GPUs in this container (numbered from 0); "
        "it repeats NVIDIA_VISIBLE_DEVICES, which counts the host's GPUs: unset it"
    )


@pytest.mark.parametrize("value", ["0 1", "0;1", "0-1", "0x1"])
def test_a_value_that_cuda_reads_otherwise_than_written_is_shown(value):
    assert messages(value, TWO) == [
        f"CUDA_VISIBLE_DEVICES={value!r} is not a list of indices; CUDA reads {value!r} as 0; write 0,1"
    ]


@pytest.mark.parametrize("value", ["all", "none", "void", "cuda:0", "nvidia.com/gpu=0", '"0,1"', "gpu-aaaa"])
def test_a_word_hides_every_gpu(value):
    findings = judge({"CUDA_VISIBLE_DEVICES": value}, TWO)
    assert [(finding.severity, finding.code) for finding in findings] == [("warn", "gpu-hidden")]


def test_a_uuid_that_suits_cuda_but_not_torch_is_named():
    assert "write the UUID as nvidia-smi -L prints it" in messages(A.upper(), TWO)[0]


@pytest.mark.parametrize("value", ["MIG-1111-a,MIG-2222-b", f"MIG-{A}/1/0,MIG-{A}/2/0"])
def test_of_several_mig_devices_a_process_uses_the_first(value):
    first = value.split(",")[0]
    assert parse_visible(value, SLICED).seen == (first,)
    (message,) = messages(value, SLICED)
    assert message == (
        f"CUDA_VISIBLE_DEVICES={value!r} asks for 2 devices, CUDA will see 1: a process can use one MIG "
        "device, the first; give each process its own container or its own value"
    )


def test_a_mig_device_of_another_container_hides_everything():
    assert "'MIG-9999' is no MIG device of this container" in messages("MIG-9999", SLICED)[0]


@pytest.mark.parametrize("value", ["7", "GPU-ffff", "MIG-9999"])
def test_without_a_list_of_gpus_a_well_formed_value_is_believed(value):
    assert messages(value, None) == []


@pytest.mark.parametrize("value", ["1", "GPU-ffff", "MIG-9999"])
def test_where_only_the_number_of_gpus_is_known_a_uuid_is_believed(value):
    assert messages(value, (Gpu(0), Gpu(1))) == []


@pytest.mark.parametrize(
    ("environ", "indices"),
    [
        ({}, [0, 1]),
        ({"CUDA_VISIBLE_DEVICES": "1"}, [1]),
        ({"CUDA_VISIBLE_DEVICES": "1,0"}, [1, 0]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-aabb"}, [1]),
        ({"CUDA_VISIBLE_DEVICES": ""}, []),
        ({"CUDA_VISIBLE_DEVICES": "GPU-ffff"}, []),
    ],
)
def test_the_first_device_of_torch_is_the_first_visible_one(environ, indices):
    """A monitor that takes NVML's order reads the wrong GPU."""
    assert [gpu.nvml_index for gpu in order_gpus({**environ, **BY_BUS}, UNEQUAL)] == indices
    assert [gpu.nvml_index for gpu in order_gpus(environ, TWO)] == indices


def test_between_unequal_gpus_only_cuda_knows_what_an_index_means():
    assert order_gpus({"CUDA_VISIBLE_DEVICES": "1"}, UNEQUAL) is None
    assert order_gpus({"CUDA_VISIBLE_DEVICES": B}, UNEQUAL) == (UNEQUAL[1],)


def test_an_index_between_unequal_gpus_is_noted():
    (finding,) = judge({"CUDA_VISIBLE_DEVICES": "1"}, UNEQUAL)
    assert (finding.severity, finding.code) == ("note", "devices-order")
    assert judge({"CUDA_VISIBLE_DEVICES": "1", **BY_BUS}, UNEQUAL) == ()


@pytest.mark.parametrize("value", ["MIG-2222-b", f"MIG-{A}/2/0"])
def test_a_visible_mig_device_is_found_in_either_form(value):
    assert order_gpus({"CUDA_VISIBLE_DEVICES": value}, SLICED) == (SLICED[0].mig[1],)


@given(st.text(alphabet='0123456789-+, GPUMIabx;:/"\t', max_size=40) | st.text(max_size=20))
def test_no_value_is_too_strange_to_be_judged(value):
    visible = parse_visible(value, TWO)
    assert len(visible.seen) <= len(TWO)
    for finding in judge({"CUDA_VISIBLE_DEVICES": value}, TWO):
        assert "\n" not in finding.message


def test_a_number_too_long_for_the_driver_is_no_device():
    assert parse_visible("1" * 5000, TWO).seen == ()
