"""The machine that a doctor looks at, and what a check says about it."""

import os

from torch_pool import nvml
from torch_pool.gpu import Access, inspect, with_probe
from torch_pool.hardware import cuda_major
from torch_pool.nvml import Gpu, Inventory, unnamed_gpus
from torch_pool.record import TYPE_CHECKING, NamedTuple
from torch_pool.torch_version import image_torch_version

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Literal

    from torch_pool.child import Failure

    Status = Literal["ok", "warning", "error", "not applicable"]


class Check(NamedTuple):
    """What one check found: what was seen, and what to do about it where there is something to do."""

    name: str
    status: "Status"
    seen: str
    advice: str = ""


class Machine(NamedTuple):
    """Everything that costs a look at the outside. `root` is / but for tests."""

    environ: "Mapping[str, str]"
    access: Access
    inventory: "Inventory | Failure | None" = None
    torch: str | None = None
    uid: int = 0
    root: str = "/"

    @property
    def gpus(self) -> "tuple[Gpu, ...] | None":
        """NVML's list, or one made from the device nodes; None where neither is known."""
        if isinstance(self.inventory, Inventory):
            return self.inventory.gpus
        if self.access.platform in ("wsl2", "tegra"):
            return None
        return unnamed_gpus(self.access.nodes)


def examine(environ: "Mapping[str, str]") -> Machine:
    """Look at this machine. Where a GPU is there NVML and CUDA are asked, each for 2 s at most."""
    torch = image_torch_version()
    access = inspect(environ, cuda_major=cuda_major(torch or ""))
    inventory = None if access.platform is None else nvml.query()
    return Machine(environ, with_probe(access, environ), inventory, torch, os.getuid())
