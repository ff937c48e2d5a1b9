"""A small torch for tests of the in-process hook: what the hook calls, with a GPU's answers and no GPU.

CUDA "starts" with `cuda.start()`. FAKE_DEVICES is the count of devices, FAKE_FAILURE refuses every cap.
"""

import contextlib
import os
import types

__version__ = "2.6.0+cu124"
version = types.SimpleNamespace(cuda="12.4")


class OutOfMemoryError(RuntimeError):
    pass


class _Cuda:
    def __init__(self):
        self.queue, self.started, self.shares = [], False, {}
        self.backend = (
            "native" if "native" in os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "") else "cudaMallocAsync"
        )

    def start(self):
        self.started = True
        for call in self.queue:
            call()

    def _lazy_call(self, call):
        self.queue.append(call)

    def is_initialized(self):
        return self.started

    def get_allocator_backend(self):
        return self.backend

    def device_count(self):
        return int(os.environ.get("FAKE_DEVICES", "1"))

    def current_device(self):
        return 0

    def get_device_properties(self, _ordinal):
        return types.SimpleNamespace(total_memory=80 << 30)

    def set_per_process_memory_fraction(self, share, ordinal):
        if "FAKE_FAILURE" in os.environ:
            raise RuntimeError("invalid device ordinal")
        self.shares[ordinal] = share

    def memory_stats(self, _ordinal):
        native = self.backend == "native"
        return {"reserved_bytes.all.peak": 2 << 20, "allocation.all.peak": int(native)}

    def memory_snapshot(self):
        return [{"is_expandable": False}]

    def device(self, _ordinal):
        return contextlib.nullcontext()


cuda = _Cuda()
