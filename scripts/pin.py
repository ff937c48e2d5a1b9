"""`make pin`: asks the registries for the digests of the bases and writes them into images/bases.yaml."""

import re
import subprocess
import sys
from pathlib import Path

from torch_pool.refusal import UNAVAILABLE, Refusal

from scripts.bases import REGISTRY, TABLE, Base, candidates, load_table
from scripts.diagnosis import diagnose
from scripts.engine import ensure_engine
from scripts.render import write_if_changed
from scripts.settings import Settings

_SECONDS = 60


def main(settings: Settings) -> int:
    """Pins BASE where it names a row, else every row that a registry has.

    Raises:
        Refusal: a registry does not give a digest; the table stays as it was.
    """
    table = load_table()
    rows = [base for base in table.bases.values() if base.kind == REGISTRY]
    if settings.base.value != "auto":
        named = {base.name for base in candidates(settings.base, table, settings.base_registry)}
        rows = [base for base in rows if base.name in named]
    if not rows:
        raise Refusal(f"BASE={settings.base.value} is no row of {TABLE.name} that comes from a registry")
    if settings.dry_run.value == "1":
        for base in rows:
            print(f"would write the digest of {_mirrored(base, settings)} into {TABLE.name}", file=sys.stderr)
        return 0
    ensure_engine(settings)
    text = TABLE.read_text("utf-8")
    for base in rows:
        digest = read_digest(_mirrored(base, settings))
        print(f"{base.name}: {base.reference}@{digest}", file=sys.stderr)
        text = set_digest(text, base.name, digest)
    write_if_changed(Path(TABLE), text)
    return 0


def _mirrored(base: Base, settings: Settings) -> str:
    (mirrored,) = candidates(settings.base._replace(value=base.name), load_table(), settings.base_registry)
    return mirrored.reference


def read_digest(reference: str) -> str:
    """The digest that a registry gives for a tag, through buildx imagetools.

    Raises:
        Refusal: it gives none, with the reason.
    """
    command = ["docker", "buildx", "imagetools", "inspect", reference, "--format", "{{.Manifest.Digest}}"]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise Refusal(f"the registry of {reference} did not answer in {_SECONDS} s", UNAVAILABLE) from error
    digest = run.stdout.strip()
    if run.returncode or not re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
        reason = diagnose(run.stderr)
        raise Refusal(f"no digest for {reference}, so nothing is pinned: {reason}", UNAVAILABLE)
    return digest


def set_digest(text: str, name: str, digest: str) -> str:
    """Writes a digest into a row of the table's text; comments and order stay."""
    text = text.rstrip("\n") + "\n"
    row = re.search(rf"(?m)^  {re.escape(name)}:.*\n(?:    .*\n)*", text)
    if not row:
        raise Refusal(f"{TABLE.name} has no row {name}")
    lines = [line for line in row[0].splitlines(keepends=True) if not line.startswith("    digest:")]
    at = 1 + next(index for index, line in enumerate(lines) if line.startswith("    reference:"))
    lines.insert(at, f"    digest: {digest}\n")
    return text[: row.start()] + "".join(lines) + text[row.end() :]
