"""`make bench-launch`: what the launch of a command costs, as a table with the goals beside the findings.

Times depend on the machine, so this is never a test. Everything but `docker stop` is measured by
launch_timing.py, in one container.
"""

import json
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
from torch_pool.refusal import Refusal

from scripts import launch_timing
from scripts.bench_build import Row, describe_machine, format_table
from scripts.builder import require_image
from scripts.containers import LABEL, run_container
from scripts.engine import docker_client, ensure_engine
from scripts.images import ROOT, load_images
from scripts.labels import read_commit
from scripts.launch_timing import BARE, PLAIN, SHELL
from scripts.settings import Settings
from scripts.tags import rolling_tag

REPORT = ROOT / "docs" / "benchmarks" / "launch.md"
ELSEWHERE = REPORT.with_name("launch-gpu.json")
CONFS = ROOT / "tests" / "data" / "alloc_conf_2.6.0.json"
ROUNDS = 300
STOPS = 20
HANDLES_NOTHING = "import time; print('up', flush=True); time.sleep(600)"
METHOD = (
    "Measured in one container, in rounds that start each variant once: from the start of the process to\n"
    "the moment when the kernel opens the command to execute it; of the bare Python to its end."
)


@dataclass(frozen=True)
class Spread:
    """Milliseconds."""

    median: float
    p95: float


def main(settings: Settings) -> int:
    """Measures the image infer, prints the table, and writes it with the raw data to docs/benchmarks/.

    Raises:
        Refusal: the image is not built, or something in it fails.
    """
    ensure_engine(settings)
    client = docker_client()
    tag = rolling_tag(load_images()["infer"], settings)
    require_image(client, tag)
    raw = {
        "machine": describe_machine(),
        "load": os.getloadavg()[0],
        "commit": read_commit().version,
        **measure(client, tag),
        "docker_stop_milliseconds": [stop_milliseconds(client, tag) for _ in range(STOPS)],
    }
    text = format_report(raw) + format_elsewhere(json.loads(ELSEWHERE.read_text()))
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(text)
    REPORT.with_suffix(".json").write_text(json.dumps(raw) + "\n")
    print(text)
    return 0


def measure(client: docker.DockerClient, tag: str) -> dict[str, Any]:
    """What launch_timing.py tells from inside a container; its entrypoint is not ours, so that all is plain.

    Raises:
        Refusal: it fails.
    """
    confs = [case["conf"] for case in json.loads(CONFS.read_text())["cases"]]
    program = Path(launch_timing.__file__).read_text()
    ended = run_container(
        client,
        tag,
        ["-c", program, str(ROUNDS), json.dumps(confs)],
        entrypoint=launch_timing.PYTHON,
        timeout_seconds=600,
    )
    if ended.status != 0:
        raise Refusal(f"the measurement in {tag} ended with status {ended.status}: {ended.stderr}", 1)
    told: dict[str, Any] = json.loads(ended.stdout)
    return told


def stop_milliseconds(client: docker.DockerClient, tag: str) -> float:
    """How long `docker stop` takes for a Python program that handles nothing."""
    container = client.containers.run(
        tag, ["python", "-c", HANDLES_NOTHING], detach=True, labels={LABEL: "run"}
    )
    try:
        next(container.logs(stream=True, stderr=False))
        start = time.perf_counter()
        container.stop(timeout=10)
        return round((time.perf_counter() - start) * 1000, 1)
    finally:
        container.remove(force=True)


def spread(milliseconds: Sequence[float]) -> Spread:
    """The median and the 95th percentile (the smallest value that 95 % do not exceed)."""
    ordered = sorted(milliseconds)
    return Spread(statistics.median(ordered), ordered[-(-len(ordered) * 95 // 100) - 1])


def judge_goals(raw: Mapping[str, Any]) -> list[Row]:
    """The goals of the project beside what was found."""
    times = {name: spread(values) for name, values in raw["milliseconds"].items()}
    judged = spread(raw["judge_milliseconds"])
    rows = [
        Row("plain launch against a bare start, medians", 1.2, times[PLAIN].median / times[BARE].median, "x"),
        Row("plain launch, 95th percentile", 20, times[PLAIN].p95, "ms"),
        Row("plain launch, peak memory", 12, raw["peak_kib"][PLAIN] / 1024, "MiB"),
        Row("judging one conf, 95th percentile", 1, judged.p95, "ms"),
    ]
    if "docker_stop_milliseconds" in raw:
        stop = spread(raw["docker_stop_milliseconds"])
        rows.append(Row("docker stop of a program that handles nothing, median", 500, stop.median, "ms"))
    return rows


def format_report(raw: Mapping[str, Any]) -> str:
    """The page in Markdown."""
    paragraphs = [
        "# What a launch costs",
        _format_machine(raw),
        format_table(judge_goals(raw)),
        METHOD,
        _format_variants(raw["milliseconds"]),
        _format_rest(raw),
    ]
    return "\n\n".join(paragraphs) + "\n"


def format_elsewhere(raw: Mapping[str, Any]) -> str:
    """The part of the page on a quiet machine with a GPU, whose raw data are committed as they are.

    They were made by launch_timing.py, called by hand with the files of an image in /opt/torch-pool; for the
    plain path with the device nodes and /proc/driver/nvidia hidden by mounts.
    """
    machine = raw["machine"]
    host = (
        f"Measured on {machine['date']}: {machine['gpu']}, {machine['cores']} cores, "
        f"{machine['memory_gb']} GB, Linux {machine['kernel']},\n"
        f"Python {machine['python']}, load {machine['load']:.1f}, no Docker. "
        f"Raw data: [{ELSEWHERE.name}]({ELSEWHERE.name})."
    )
    paragraphs = [
        "## On a quiet machine, with and without its GPU",
        host,
        format_table(judge_goals(raw["plain"])),
        "Its GPU hidden:",
        _format_variants(raw["plain"]["milliseconds"]),
        "Its GPU in view; the probe is a child process that spends its time in `cuInit`:",
        _format_variants(raw["gpu"]["milliseconds"]),
    ]
    return "\n" + "\n\n".join(paragraphs) + "\n"


def _format_machine(raw: Mapping[str, Any]) -> str:
    machine = raw["machine"]
    return (
        f"Written by `make bench-launch` on {machine['date']}: image infer, {machine['cores']} cores, "
        f"{machine['memory_gb']} GB,\nLinux {machine['kernel']}, Docker {machine['docker']}, no GPU, load "
        f"{raw['load']:.1f} before it began. Raw data: [launch.json](launch.json)."
    )


def _format_variants(milliseconds: Mapping[str, Sequence[float]]) -> str:
    times = {name: spread(values) for name, values in milliseconds.items()}
    shell, bare = times[SHELL].median, times[BARE].median
    head = ["| variant | median ms | p95 ms | x bare | ms more than sh |", "|---|---|---|---|---|"]
    rows = [
        f"| {name} | {found.median:.1f} | {found.p95:.1f} | {found.median / bare:.2f} "
        f"| {found.median - shell:+.1f} |"
        for name, found in times.items()
    ]
    return "\n".join([*head, *rows])


def _format_rest(raw: Mapping[str, Any]) -> str:
    imports = ", ".join(f"`{name}`" for name in raw["imports"])
    launch, bare = (raw["peak_kib"][name] / 1024 for name in (PLAIN, BARE))
    judged = raw["judge_milliseconds"]
    return (
        f"Beyond what a bare Python imports, the plain path imports {imports}.\n"
        f"Its peak memory is {launch:.1f} MiB; that of a bare Python is {bare:.1f} MiB.\n"
        f"Judging one of {len(judged)} confs takes {spread(judged).median:.3f} ms "
        f"(p95 {spread(judged).p95:.3f}, slowest {max(judged):.3f})."
    )
