"""The programs of images/bases run below another root, as if it were the image that they build."""

import os
import re
import shutil
import subprocess
import sys

from scripts.images import ROOT

BASES = ROOT / "images" / "bases"
_ABSOLUTE = re.compile(r"(?<![\w.}/])/(?=(?:etc|home|opt|root|run|usr/local|var|workspace)\b)")
RECORDER = f"""#!{sys.executable} -I
import os, sys
with open("{{root}}/calls", "a") as calls:
    print(os.path.basename(sys.argv[0]), *sys.argv[1:], file=calls)
"""


class Image:
    """A root folder with the programs of images/bases in run/bases; their absolute paths lie below it."""

    def __init__(self, root):
        self.root = root
        for name in ("etc/apt/apt.conf.d", "run/secrets", "opt", "home", "var/log/apt", "programs"):
            (root / name).mkdir(parents=True)
        (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/bash\n")
        shutil.copytree(BASES, root / "run/bases", ignore=shutil.ignore_patterns("__pycache__"))
        for path in (root / "run/bases").rglob("*"):
            if path.suffix in {".sh", ".py"}:
                path.write_text(self.move(path.read_text()))

    def move(self, text):
        """Points every absolute path below the root, but for those of the shebang and the host's tools."""
        return _ABSOLUTE.sub(f"{self.root}/", text)

    def put(self, name, then=""):
        """A program that writes down its call; on PATH where its name has no folder."""
        path = self.root / (name if "/" in name else f"programs/{name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(RECORDER.format(root=self.root) + then)
        path.chmod(0o755)
        return path

    def run(self, script, *arguments, **environ):
        path = self.root / "run/bases" / script
        command = ["bash", path] if script.endswith(".sh") else [sys.executable, "-I", path]
        return subprocess.run(
            [*command, *arguments],
            env={"PATH": f"{self.root}/programs:{os.environ['PATH']}", **environ},
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def calls(self):
        file = self.root / "calls"
        text = file.read_text() if file.exists() else ""
        return text.replace(f"{self.root}", "").splitlines()
