"""What the gate would find in an image that passes; tests replace the one thing that they are about."""

import json

from torch_pool.profile import Profile

from scripts.base_image import ReadyBase
from scripts.bases import load_table
from scripts.containers import Outcome
from scripts.facts import Facts
from scripts.gate import OCI_LABELS, Evidence
from scripts.images import Image
from scripts.layers import Layer

BASE_FACTS = Facts(
    torch="2.6.0+cu124",
    cuda="12.4",
    cudnn="90100",
    python="3.11.2",
    distribution="debian12",
    backend="native",
    installed={"torch": ["2.6.0"], "numpy": ["2.4.6"]},
    missing_requirements=(),
    uid=0,
    gid=0,
    unwritable=(),
    wrong_modes=(),
    failed_imports=(),
    compiler=True,
    python_headers=True,
)
BASE_LAYERS = (Layer("sha256:a", 120_000_000, "mmdebstrap"), Layer("sha256:b", 4_000_000_000, "RUN install"))
READY_BASE = ReadyBase(
    load_table().bases["wheels"],
    "torch-pool-base:wheels",
    BASE_FACTS,
    "linux/amd64",
    BASE_LAYERS,
    4_120_000_000,
    4_120_000_000,
)
IMAGE = Image("infer", "torch-pool infer", "For serving", "infer", 1)
PROFILE = Profile("infer", "", {"backend": "cudaMallocAsync"}, {}, {})
LABELS = {
    **{f"org.opencontainers.image.{name}": "x" for name in OCI_LABELS},
    "io.torch-pool.profile": "infer",
    "io.torch-pool.conf": "backend:cudaMallocAsync",
    "io.torch-pool.torch": "2.6.0+cu124",
    "io.torch-pool.cuda": "12.4",
    "io.torch-pool.python": "3.11.2",
}
ENVIRONMENT = {
    "PATH": "/usr/bin:/bin:/opt/torch-pool/bin",
    "TOKENIZERS_PARALLELISM": "false",
    "NVIDIA_VISIBLE_DEVICES": "void",
    "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
    "NVIDIA_REQUIRE_CUDA": "cuda>=12.0",
    "PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync",
}


def image_config(labels=LABELS, environment=ENVIRONMENT):
    """The Config of `docker image inspect`."""
    return {"Labels": labels, "Env": [f"{name}={value}" for name, value in environment.items()]}


def facts(**changes):
    values = {**vars(BASE_FACTS), "uid": 1000, "backend": "cudaMallocAsync", **changes}
    return Facts(**values)


PROVED = tuple(
    {"name": name, "status": "proved", "found": "x"}
    for name in ("settings", "environment", "torch", "backend")
)


def selftest(*proofs, status=69):
    """What the image's own self-test prints on a machine without a GPU."""
    return Outcome(status, json.dumps({"format": 1, "proofs": proofs}), "")


def evidence(**changes):
    values = {
        "image": IMAGE,
        "profile": PROFILE,
        "base": READY_BASE,
        "config": image_config(),
        "facts": facts(),
        "echo": Outcome(0, "torch-pool-gate\n", ""),
        "selftest": selftest(*PROVED),
        "layers": (*BASE_LAYERS, Layer("sha256:c", 700_000, "COPY /files/ /")),
        "history": ("COPY /files/ / # buildkit", "ARG NVIDIA_REQUIRE_CUDA", "mmdebstrap bookworm"),
        "added_bytes": 700_000,
        "platform": "linux/amd64",
        **changes,
    }
    return Evidence(**values)
