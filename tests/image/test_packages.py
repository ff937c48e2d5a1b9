"""What the wheels base and the packages must still do, as far as a CPU can show."""

import pytest

pytestmark = pytest.mark.image

WORKS_ON_CPU = r"""
import torch, torch.nn.functional as F
x = torch.randn(8, 8)
assert torch.allclose(x @ torch.eye(8), x)
assert F.conv2d(torch.randn(1, 3, 8, 8), torch.randn(4, 3, 3, 3)).shape == (1, 4, 6, 6)
assert torch.allclose(torch.fft.ifft(torch.fft.fft(x)).real, x, atol=1e-5)
assert torch.allclose(torch.linalg.inv(x) @ x, torch.eye(8), atol=1e-2)
assert torch.sparse.mm(torch.eye(8).to_sparse(), x).equal(x)
with torch.profiler.profile() as profile:
    x @ x
assert any("mm" in event.key for event in profile.key_averages())
print("works")
"""
COMPILES = """
import torch
f = torch.compile(lambda x: torch.sin(x) * 2 + x)
x = torch.randn(16)
assert torch.allclose(f(x), torch.sin(x) * 2 + x)
print("compiled")
"""
NCCL = """
import torch, torch.distributed as dist, tempfile
print(torch.cuda.nccl.version(), dist.is_nccl_available())
with tempfile.NamedTemporaryFile() as file:
    dist.init_process_group("gloo", init_method=f"file://{file.name}x", rank=0, world_size=1)
    t = torch.ones(2); dist.all_reduce(t); assert t.tolist() == [1, 1]
    dist.destroy_process_group()
"""
TRITON_BUILDS_ITS_STUB = """
import os, tempfile
from triton.runtime.build import _build
with tempfile.TemporaryDirectory() as folder:
    source = os.path.join(folder, "stub.c")
    open(source, "w").write("#include <Python.h>\\nint answer(void) { return 42; }\\n")
    print(os.path.basename(_build("stub", source, folder, [], [], [])))
from triton.backends.nvidia.compiler import _path_to_binary
print(_path_to_binary("ptxas")[1])
"""


def test_matmul_conv_fft_linalg_sparse_and_profiler_work(run):
    # torch's own line, when its profiler looks for GPUs.
    ended = run("infer", "python", "-c", WORKS_ON_CPU, expects=["gpuGetDeviceCount failed"])
    assert (ended.status, ended.stdout) == (0, "works\n")


def test_torch_compile_finds_compiler_and_headers(run):
    ended = run("infer", "python", "-c", COMPILES)
    assert (ended.status, ended.stdout) == (0, "compiled\n")


def test_triton_can_build_its_launcher_and_finds_ptxas(run):
    ended = run("infer", "python", "-c", TRITON_BUILDS_ITS_STUB)
    assert ended.status == 0
    assert ended.stdout.startswith("stub.cpython-311")
    assert "12.4" in ended.stdout


def test_nccl_is_there_and_a_process_group_starts(run):
    ended = run("infer", "python", "-c", NCCL)
    assert (ended.status, ended.stdout) == (0, "(2, 21, 5) True\n")


def test_no_library_misses_another_but_the_drivers(run):
    """Every ELF file of torch, Triton and NVIDIA, with their folders in reach as `import torch` has them."""
    script = r"""
site=/usr/local/lib/python3.11/dist-packages
export LD_LIBRARY_PATH=$(find $site/nvidia $site/cusparselt $site/torch -name lib -type d | paste -sd:)
find $site -name '*.so*' -type f | while read -r library; do
    ldd "$library" 2>/dev/null | grep 'not found' | sed "s#^#$library:#"
done | grep -v -E 'libcuda.so.1|libnvidia-ml.so.1' || true
"""
    ended = run("infer", "bash", "-c", script)
    assert ended.stdout == ""


def test_there_is_one_copy_of_each_cuda_library(run):
    script = "find / -xdev -name 'libcu*.so*' -type f -printf '%f\\n' | sort | uniq -d"
    assert run("infer", "sh", "-c", script).stdout == ""


def test_no_cache_of_a_package_manager_is_left(image, run):
    script = (
        "find /root/.cache /home/torch-pool/.cache /var/lib/apt/lists /var/cache/apt "
        "-type f ! -name lock 2>/dev/null; "
        "find / -xdev -name '*.a' -path '*dist-packages*'"
    )
    assert run(image, "sh", "-c", script, user="0").stdout == ""


BERT = """
import sentencepiece, tokenizers, torch
from transformers import BertConfig, BertModel
config = BertConfig(
    hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, vocab_size=64
)
print(tuple(BertModel(config)(torch.tensor([[1, 2, 3]])).pooler_output.shape))
"""
LORA = """
import warnings
warnings.simplefilter("ignore", FutureWarning)  # the packages have their own talk among themselves
import accelerate, datasets, torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM
config = LlamaConfig(
    hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, vocab_size=64
)
model = get_peft_model(LlamaForCausalLM(config), LoraConfig(target_modules=["q_proj"]))
tokens = torch.tensor(datasets.Dataset.from_dict({"a": [1, 2]})["a"]).unsqueeze(0)
model(tokens, labels=tokens).loss.backward()
print(tuple(tokens.shape))
"""


@pytest.mark.parametrize(
    ("name", "program", "printed"), [("nlp", BERT, "(1, 32)\n"), ("llm-finetune", LORA, "(1, 2)\n")]
)
def test_the_packages_of_an_image_run_a_small_model_without_a_network(name, program, printed, run):
    ended = run(name, "python", "-c", program, network_mode="none")
    assert (ended.status, ended.stdout) == (0, printed)
