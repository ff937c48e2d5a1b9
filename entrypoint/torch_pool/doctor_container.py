"""What the doctor says about the container around the command: memory, user, caches, libraries, rights."""

import os

from torch_pool.home import may_hold_code
from torch_pool.launch import SHM, code_caches, file_system_bytes, login_name, user_name
from torch_pool.libraries import library_path, under, version_of
from torch_pool.machine import Check, Machine
from torch_pool.record import TYPE_CHECKING
from torch_pool.size import format_size

if TYPE_CHECKING:
    from collections.abc import Iterator

SHM_WANTED_BYTES = 1 << 30
"""What training profiles ask for; Docker gives 64 MiB."""
SYS_PTRACE = 19  # CAP_SYS_PTRACE of linux/capability.h
_CUDA_LIBRARIES = (
    "libcuda",
    "libcudart",
    "libcudnn",
    "libcublas",
    "libcublasLt",
    "libcufft",
    "libcurand",
    "libcusolver",
    "libcusparse",
    "libnccl",
    "libnvJitLink",
    "libnvrtc",
)
_OF_THE_IMAGE = ("/site-packages/nvidia/", "/dist-packages/nvidia/", "/torch/lib/")
_RUNTIME_VARIABLES = {
    "KUBERNETES_SERVICE_HOST": "Kubernetes",
    "APPTAINER_NAME": "Apptainer",
    "SINGULARITY_NAME": "Singularity",
    "ENROOT_VERSION": "enroot",
}
_RUNTIME_FILES = {"/run/.containerenv": "Podman", "/.dockerenv": "Docker"}


def check_runtime(machine: Machine) -> Check:
    """Who runs this container; advice differs between them."""
    by_variable = [name for variable, name in _RUNTIME_VARIABLES.items() if variable in machine.environ]
    by_file = [name for file, name in _RUNTIME_FILES.items() if os.path.exists(under(machine.root, file))]
    return Check("runtime", "ok", [*by_variable, *by_file, "no sign of a container"][0])


def check_shm(machine: Machine) -> Check:
    """Data-loader workers pass tensors through /dev/shm, and die by SIGBUS when it is full."""
    total_bytes = file_system_bytes(under(machine.root, SHM))
    seen = f"{SHM} is {format_size(total_bytes)}"
    if total_bytes >= SHM_WANTED_BYTES:
        return Check("shm", "ok", seen)
    advice = (
        "for data-loader workers docker run --shm-size=1g, or in Kubernetes an emptyDir with medium: Memory "
        "mounted at /dev/shm"
    )
    return Check("shm", "warning", seen, advice)


def check_user(machine: Machine) -> Check:
    """A user without a name or a home breaks torch inductor, Triton and much else."""
    name = login_name(machine.uid, under(machine.root, "/etc/passwd"))
    home = machine.environ.get("HOME", "")
    seen = f"uid {machine.uid} ({name or 'no entry in /etc/passwd'}), HOME={home or 'unset'}"
    if not os.access(home or "/nonexistent", os.W_OK | os.X_OK):
        advice = (
            "give -e HOME=DIR, a directory that can be written; a launch replaces only the image's own HOME"
        )
        return Check("user", "warning", f"{seen}, which cannot be written", advice)
    if name is None and not (machine.environ.get("USER") and machine.environ.get("LOGNAME")):
        return Check("user", "warning", seen, "give -e USER=NAME -e LOGNAME=NAME; a launch does so by itself")
    return Check("user", "ok", seen)


def check_caches(machine: Machine) -> Check:
    """Inductor's and Triton's caches are code that is run: this user alone may write there."""
    environ = machine.environ
    usual = code_caches(
        environ, environ.get("HOME") or "/", user_name(environ, login_name(machine.uid), machine.uid)
    )
    code = {name: environ.get(name) or path for name, path in usual.items()}
    unfit = [f"{name}={path}" for name, path in code.items() if not may_hold_code(path, machine.uid)]
    if not unfit:
        return Check("caches", "ok", ", ".join(code.values()))
    seen = f"{', '.join(unfit)} cannot hold compiled code of this user alone"
    advice = "point it to a directory of this user alone, 0700 and not noexec; a launch does so by itself"
    return Check("caches", "warning", seen, advice)


def check_libraries(machine: Machine) -> Check:
    """CUDA libraries that LD_LIBRARY_PATH puts before those of the image's torch."""
    foreign = list(_foreign_libraries(machine))
    if not foreign:
        return Check("libraries", "ok", "no foreign CUDA library on LD_LIBRARY_PATH")
    advice = (
        "take these directories off LD_LIBRARY_PATH unless you mean to replace the libraries of the image"
    )
    return Check("libraries", "warning", ", ".join(foreign), advice)


def check_capabilities(machine: Machine) -> Check:
    """Expandable segments share tensors between processes through pidfd_getfd, which needs CAP_SYS_PTRACE."""
    try:
        with open(under(machine.root, "/proc/self/status"), encoding="utf-8") as file:
            mask = parse_effective_capabilities(file.read())
    except OSError:
        mask = None
    if mask is None:
        return Check("capabilities", "not applicable", "/proc/self/status does not tell")
    if mask >> SYS_PTRACE & 1:
        return Check("capabilities", "ok", "SYS_PTRACE is there")
    advice = (
        "only for CUDA tensors shared between processes under expandable: docker run --cap-add SYS_PTRACE"
    )
    return Check("capabilities", "ok", "SYS_PTRACE is not there", advice)


def parse_effective_capabilities(status: str) -> int | None:
    """The bits of CapEff in /proc/self/status."""
    values = [line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")]
    return int(values[0], 16) if values else None


def _foreign_libraries(machine: Machine) -> "Iterator[str]":
    for directory in dict.fromkeys(library_path(machine.environ)):
        if any(part in f"{directory}/" for part in _OF_THE_IMAGE):
            continue
        for name in _cuda_libraries_in(under(machine.root, directory)):
            path = os.path.join(directory, name)
            version = version_of(os.path.realpath(under(machine.root, path)))
            # The driver's own libcuda may well be there, put by the container runtime.
            if version is None or version != machine.access.driver:
                yield f"{path} ({version or 'version unknown'})"


def _cuda_libraries_in(directory: str) -> list[str]:
    """The names by which they are loaded, with the ABI number: libcudnn.so.8, not libcudnn.so.8.9.7."""
    try:
        names = os.listdir(directory)
    except OSError:
        return []
    split = {name: name.partition(".so.") for name in names}
    return sorted(n for n, (stem, _, abi) in split.items() if stem in _CUDA_LIBRARIES and abi.isdigit())
