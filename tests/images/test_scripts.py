import hashlib
import re
import stat
import subprocess
import sys
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from scripts.diagnosis import diagnose
from scripts.images import ROOT

BASES = ROOT / "images" / "bases"
PYTHON = "/usr/bin/python3.11"
INSTALL = (
    f"uv pip install --no-config --python {PYTHON} --system --break-system-packages"
    " --no-deps --require-hashes --link-mode copy"
)
# uv, as far as a caller sees it: with what it was told by the environment.
UV = """
with open("{root}/environ", "w") as file:
    told = [name for name in sorted(os.environ) if name.startswith(("UV_", "SSL_"))]
    print(*(f"{{name}}={{os.environ[name]}}" for name in told), file=file)
"""
# The python of a base: has a pip or not, and lists what is installed.
BASE_PYTHON = """
if sys.argv[1:5] == ["-I", "-m", "pip", "--version"]:
    sys.exit({no_pip})
if sys.argv[1:5] == ["-I", "-m", "pip", "list"]:
    print("{installed}")
"""
INSTALLED = ["filelock==3.1", "nvidia-cudnn-cu12==9.1.0.70", "numpy==2.4.6", "torch==2.6.0", "triton==3.2.0"]


@pytest.fixture
def uv(image):
    return image.put("run/uv", UV.format(root=image.root))


def environ(image):
    return (image.root / "environ").read_text().replace(str(image.root), "").strip()


def test_uv_installs_what_is_locked_and_nothing_else(image, uv):
    done = image.run("uv.sh", PYTHON, "-r", "/x/requirements.txt")
    assert (done.returncode, done.stderr) == (0, "")
    assert image.calls == [f"{INSTALL} -r /x/requirements.txt"]
    assert environ(image) == ""


def test_index_and_certificates_are_the_machines_own(image, uv):
    (image.root / "run/secrets/ca").write_text("PEM")
    (image.root / "run/secrets/index").write_text("https://u:secret@i.example/simple")
    assert image.run("uv.sh", PYTHON, "-r", "x").returncode == 0
    assert environ(image) == (
        "SSL_CERT_FILE=/run/secrets/ca UV_DEFAULT_INDEX=https://u:secret@i.example/simple"
    )
    assert "secret@" not in " ".join(image.calls)


def test_an_empty_secret_is_none(image, uv):
    for name in ("ca", "index"):
        (image.root / "run/secrets" / name).write_text("")
    image.run("uv.sh", PYTHON, "-r", "x")
    assert environ(image) == ""


def test_a_failed_installation_fails(image):
    image.put("run/uv", "sys.exit(2)")
    assert image.run("uv.sh", PYTHON).returncode == 2


@pytest.mark.parametrize("locked", ["six==1.16.0", f"six==1.16.0 --hash=sha256:{'0' * 64}"])
def test_a_dead_index_or_a_missing_hash_stops_the_build_with_no_other_index_tried(image, tmp_path, locked):
    # The real uv; nothing listens on port 9 (discard).
    done, installed = install(image, tmp_path, locked, "http://127.0.0.1:9/simple")
    assert (done.returncode != 0, installed) == (True, [])
    meant = "cannot be reached" if "--hash" in locked else "all requirements must have a hash"
    assert meant in diagnose(done.stderr)
    assert set(re.findall(r"https?://[^/\s`)]+", done.stderr)) <= {"http://127.0.0.1:9"}


@pytest.fixture
def index(tmp_path):
    """A package index with one wheel; gives its URL and the wheel's hash."""
    folder = tmp_path / "index" / "simple" / "small"
    folder.mkdir(parents=True)
    wheel = folder / "small-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("small.py", "")
        archive.writestr("small-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: small\nVersion: 1.0\n")
        archive.writestr("small-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr("small-1.0.dist-info/RECORD", "")
    (folder / "index.html").write_text(f'<a href="{wheel.name}">{wheel.name}</a>')
    handler = partial(Handler, directory=tmp_path / "index")
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/simple", hashlib.sha256(wheel.read_bytes()).hexdigest()
        server.shutdown()


class Handler(SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        """Says nothing."""


def install(image, tmp_path, locked, url):
    """Runs uv.sh with the real uv; returns how it ended and what is installed."""
    (image.root / "run/uv").symlink_to(Path(sys.executable).with_name("uv"))
    (image.root / "run/secrets/index").write_text(url)
    (tmp_path / "requirements.txt").write_text(f"{locked}\n")
    done = image.run(
        "uv.sh",
        *(sys.executable, "--target", tmp_path / "target", "-r", tmp_path / "requirements.txt"),
        UV_CACHE_DIR=str(tmp_path / "cache"),
        UV_HTTP_RETRIES="0",
        NO_PROXY="127.0.0.1",
    )
    return done, sorted(path.name for path in tmp_path.glob("target/*.py"))


def test_a_package_is_installed_where_its_hash_is_the_locked_one(image, tmp_path, index):
    url, digest = index
    done, installed = install(image, tmp_path, f"small==1.0 --hash=sha256:{digest}", url)
    assert (done.returncode, installed) == (0, ["small.py"]), done.stderr


def test_another_package_under_the_locked_version_stops_the_build(image, tmp_path, index):
    url, _ = index
    done, installed = install(image, tmp_path, f"small==1.0 --hash=sha256:{'0' * 64}", url)
    assert (done.returncode != 0, installed) == (True, [])
    assert diagnose(done.stderr).startswith("a package is not the one that the lock names")


def test_apt_installs_with_the_machines_mirror_and_leaves_no_trace(image):
    image.put("apt-get")
    hook = image.root / "etc/apt/apt.conf.d/docker-clean"
    (image.root / "var/cache/debconf").mkdir(parents=True)
    for path in (hook, image.root / "var/log/dpkg.log", image.root / "var/cache/debconf/a.dat-old"):
        path.write_text("x")
    (image.root / "run/secrets/ca").write_text("PEM")
    (image.root / "run/secrets/apt_sources").write_text("deb http://m.example/debian bookworm main\n")
    done = image.run("apt.sh", "tini", "gcc")
    options = (
        "-o Acquire::Retries=3 -o Acquire::Languages=none -o Acquire::https::CAInfo=/run/secrets/ca"
        " -o Dir::Etc::SourceList=/run/secrets/apt_sources -o Dir::Etc::SourceParts=/dev/null"
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert image.calls == [
        f"apt-get {options} -q update",
        f"apt-get {options} -q install -y --no-install-recommends tini gcc",
    ]
    left = [path for path in image.root.rglob("*") if path.is_file() and "var" in path.parts]
    assert left == []
    assert not hook.exists()


def test_apt_without_secrets_uses_what_the_image_has(image):
    image.put("apt-get")
    image.run("apt.sh", "tini")
    assert image.calls[0] == "apt-get -o Acquire::Retries=3 -o Acquire::Languages=none -q update"


def test_a_failed_update_installs_nothing(image):
    image.put("apt-get", "sys.exit(100 if 'update' in sys.argv else 0)")
    assert image.run("apt.sh", "tini").returncode == 100
    assert len(image.calls) == 1


def common(
    image, *, installed=INSTALLED, no_pip=0, tools=("tini", "gcc", "g++"), told=("2.6.0+cu124", "12.4")
):
    """Runs common.sh on a base with some tools; returns how it ended."""
    image.put("run/uv")
    image.put("apt-get")
    for tool in tools:
        image.put(tool)
    # Nothing else of this machine: its own gcc would count as the base's.
    for tool in ("bash", "cat", "chmod", "dirname", "env", "grep", "ln", "mkdir", "rm", "sed"):
        (image.root / "programs" / tool).symlink_to(f"/bin/{tool}")
    python = image.put("python", BASE_PYTHON.format(no_pip=no_pip, installed="\\n".join(installed)))
    return image.run("common.sh", str(python), *(told or ("", "")), PATH=str(image.root / "programs"))


def test_the_common_layer_of_a_complete_base_adds_what_is_ours(image):
    done = common(image)
    assert (done.returncode, done.stderr) == (0, "")
    assert not [call for call in image.calls if call.startswith("apt-get")]
    (install,) = [call for call in image.calls if call.startswith("uv")]
    assert install.endswith("--target /opt/torch-pool/vendor -r /run/bases/common.txt")
    assert image.calls[-2] == "python -I /run/bases/check_torch.py 2.6.0+cu124 12.4"
    assert (image.root / "opt/torch-pool/bin/python").readlink() == image.root / "programs/python"


@pytest.mark.parametrize(
    ("tools", "packages"),
    [
        ((), "tini gcc libc6-dev g++"),
        (("tini",), "gcc libc6-dev g++"),
        (("tini", "gcc"), "g++"),
        (("gcc", "g++"), "tini"),
    ],
)
def test_what_a_base_lacks_is_installed_in_one_go(image, tools, packages):
    common(image, tools=tools)
    installs = [call for call in image.calls if call.startswith("apt-get") and " install " in call]
    assert [call.partition("--no-install-recommends ")[2] for call in installs] == [packages]


def test_a_base_without_pip_gets_one(image):
    common(image, no_pip=1)
    installs = [call.partition("copy ")[2] for call in image.calls if call.startswith("uv")]
    assert installs == ["-r /run/bases/pip.txt", "--target /opt/torch-pool/vendor -r /run/bases/common.txt"]


def test_a_base_outside_the_table_is_checked_against_nothing(image):
    common(image, told=None)
    assert "python -I /run/bases/check_torch.py" in image.calls


@pytest.mark.parametrize(
    ("extra", "companions"),
    [([], ["torchaudio===2.6.0", "torchvision===0.21.0"]), (["torchvision==0.21.0+cu124"], [])],
)
def test_the_constraints_hold_a_derived_image_to_this_torch(image, extra, companions):
    common(image, installed=[*INSTALLED, *extra])
    lines = (image.root / "opt/torch-pool/constraints.txt").read_text().splitlines()
    assert lines[0].startswith("# pip install -c ")
    held = [line.replace("==", "===") for line in [*INSTALLED, *extra] if "filelock" not in line]
    assert lines[1:] == held + companions


@pytest.mark.parametrize("line", ["", "ubuntu:x:1000:1000::/home/ubuntu:/bin/sh\n"])
def test_there_is_one_user_1000(image, line):
    passwd = image.root / "etc/passwd"
    passwd.write_text(passwd.read_text() + line)
    common(image)
    users = [user.split(":") for user in passwd.read_text().splitlines()]
    assert [user[2] for user in users] == ["0", "1000"]
    assert users[1][0] == ("ubuntu" if line else "torch-pool")


def test_anyone_can_write_at_home_in_the_caches_and_in_the_workspace(image):
    common(image)
    for name in ("home/torch-pool", "home/torch-pool/.cache", "workspace"):
        assert stat.S_IMODE((image.root / name).stat().st_mode) == 0o1777


def test_a_wrong_torch_stops_the_common_layer(image):
    image.put("run/uv")
    python = image.put("python", "sys.exit('check_torch' in ' '.join(sys.argv))")
    for tool in ("tini", "gcc", "g++"):
        image.put(tool)
    assert image.run("common.sh", str(python), "2.6.0+cu124", "12.4").returncode == 1
    assert not (image.root / "opt/torch-pool/constraints.txt").exists()


def test_packages_are_installed_compiled_once_and_checked(image, tmp_path):
    site = tmp_path / "site"
    site.mkdir()
    (site / "old.py").write_text("")
    image.put("run/uv", f"open({str(site / 'new.py')!r}, 'w').close()")
    python = f"""
if "-c" in sys.argv:
    print({str(site)!r})
"""
    image.put("opt/torch-pool/bin/python", python)
    assert image.run("packages.sh", "/x/requirements.txt").returncode == 0
    install, where, compiled, checked = image.calls
    assert install.endswith("--require-hashes --link-mode copy -r /x/requirements.txt")
    assert where.startswith("python -I -c")
    assert compiled.startswith("python -I -m compileall -q --invalidation-mode unchecked-hash ")
    assert re.findall(r"\w+\.py\b", compiled) == ["new.py"]
    assert checked == "python -I /run/bases/check_torch.py"


def test_packages_that_fail_to_install_stop_the_build(image):
    image.put("run/uv", "sys.exit(1)")
    image.put("opt/torch-pool/bin/python")
    assert image.run("packages.sh", "x").returncode == 1
    assert [call for call in image.calls if call.startswith("python")] == []


@pytest.mark.parametrize("path", sorted(BASES.rglob("*.sh")), ids=lambda path: path.name)
def test_every_script_stops_at_the_first_failure(path):
    assert "\nset -euo pipefail\n" in path.read_text()
    assert subprocess.run(["bash", "-n", path], check=False).returncode == 0


def test_a_moved_script_reaches_nothing_of_this_machine_but_its_programs(image):
    for path in (image.root / "run/bases").rglob("*.sh"):
        text = re.sub(r"(?m)^\s*#.*$", "", path.read_text().replace(str(image.root), "ROOT"))
        outside = set(re.findall(r"(?<![\w.}/])/(\w+)", text))
        assert outside <= {"bin", "dev", "usr"}, path
