"""The settings: what the user says with TORCH_POOL_* variables."""

from torch_pool.conf import CONF_BY_ALLOCATOR
from torch_pool.finding import Finding
from torch_pool.record import TYPE_CHECKING, NamedTuple
from torch_pool.refusal import Refusal
from torch_pool.size import is_memory_cap
from torch_pool.suggestion import suggest

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX = "TORCH_POOL_"
KNOWN = (
    "TORCH_POOL_ALLOCATOR",
    "TORCH_POOL_DEVICES",
    "TORCH_POOL_HOOK",
    "TORCH_POOL_HOOK_REPORT",
    "TORCH_POOL_LOCK_DIR",
    "TORCH_POOL_LOG",
    "TORCH_POOL_MEMORY",
    "TORCH_POOL_METRICS",
    "TORCH_POOL_METRICS_LISTEN",
    "TORCH_POOL_PROBE",
    "TORCH_POOL_PROFILE",
    "TORCH_POOL_REPORT_DIR",
    "TORCH_POOL_STRICT",
)
LOGS = ("text", "json", "quiet")


class Settings(NamedTuple):
    """What was asked for; an empty variable counts as unset. `findings` are about unknown variables."""

    profile: str | None = None
    allocator: str | None = None
    devices: str | None = None
    memory: str | None = None
    strict: bool = False
    probe: bool = True
    lock_dir: str | None = None
    log: str = "text"
    hook: str | None = None
    findings: tuple[Finding, ...] = ()


def read_settings(environ: "Mapping[str, str]") -> Settings:
    """Read TORCH_POOL_*; raises Refusal for a value that cannot be meant."""
    ours = {name: value for name, value in environ.items() if name.startswith(PREFIX) and value}
    _refuse_quotes(ours)
    return Settings(
        profile=ours.get("TORCH_POOL_PROFILE"),
        allocator=_read_word(ours, "TORCH_POOL_ALLOCATOR", tuple(CONF_BY_ALLOCATOR)),
        devices=ours.get("TORCH_POOL_DEVICES"),
        memory=_read_memory(ours),
        strict=_read_word(ours, "TORCH_POOL_STRICT", ("1", "0")) == "1",
        probe=_read_word(ours, "TORCH_POOL_PROBE", ("1", "0")) != "0",
        lock_dir=ours.get("TORCH_POOL_LOCK_DIR"),
        log=_read_word(ours, "TORCH_POOL_LOG", LOGS) or "text",
        hook=_read_word(ours, "TORCH_POOL_HOOK", ("1", "0")),
        findings=tuple(_unknown(name) for name in ours if name not in KNOWN and not is_service_link(name)),
    )


def is_service_link(name: str) -> bool:
    """Whether Kubernetes may have made the variable for a Service that is called torch-pool or the like."""
    return "_SERVICE_" in name or name.endswith("_PORT") or "_PORT_" in name


def _unknown(name: str) -> Finding:
    message = f"{name} is not a setting of torch-pool and has no effect; {suggest(name, KNOWN)}"
    return Finding("warn", "unknown-setting", name, message)


def _refuse_quotes(ours: "Mapping[str, str]") -> None:
    for name, value in ours.items():
        if value[0] in "\"'" and value[-1] == value[0]:
            raise Refusal(
                f"{name}={value} has quotes in its value: remove them "
                "(docker run --env-file keeps quotes, unlike a shell or Compose)"
            )


def _read_word(ours: "Mapping[str, str]", name: str, words: tuple[str, ...]) -> str | None:
    value = ours.get(name)
    if value is None or value in words:
        return value
    raise Refusal(f"{name}={value!r} is not one of {', '.join(words)}; {suggest(value, words)}")


def _read_memory(ours: "Mapping[str, str]") -> str | None:
    value = ours.get("TORCH_POOL_MEMORY")
    if value is None or is_memory_cap(value):
        return value
    raise Refusal(f"TORCH_POOL_MEMORY={value!r} is no cap: give a share such as 0.5 or a size such as 20GiB")
