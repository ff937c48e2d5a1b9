"""Builds that go wrong: a clear sentence, a status that is not 0, the old tag untouched, the next run works.

Each test builds from a copy of the checkout under names of its own, on the base that is there already.
"""

import http.server
import os
import shutil
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scripts.images import ROOT

pytestmark = pytest.mark.image

REGISTRY = "faults.invalid"
TAG = f"{REGISTRY}/torch-pool"


class Checkout:
    """A copy of the tracked files, in which `build` runs as `make build` does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
        for name in names.decode().split("\0"):
            if name and (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, folder / name)

    def command(self, profile: str, **settings: str) -> tuple[list[str], dict[str, str]]:
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "SSL_CERT_FILE") if name in os.environ}
        environ = {**kept, "PYTHONPATH": "entrypoint", "PROFILE": profile, "REGISTRY": REGISTRY, **settings}
        return [sys.executable, "-m", "scripts", "build"], environ

    def build(self, profile: str, **settings: str) -> subprocess.CompletedProcess[str]:
        command, environ = self.command(profile, **settings)
        return subprocess.run(
            command, cwd=self.folder, env=environ, capture_output=True, text=True, check=False
        )

    def start(self, profile: str, **settings: str) -> subprocess.Popen[str]:
        command, environ = self.command(profile, **settings)
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def edit(self, name: str, old: str, new: str) -> None:
        text = (self.folder / name).read_text()
        assert old in text
        (self.folder / name).write_text(text.replace(old, new))

    def install_anew(self) -> None:
        """Makes the packages of nlp differ from what the cache knows."""
        with (self.folder / "images/nlp/requirements.txt").open("a") as file:
            file.write(f"# {self.folder}\n")


@pytest.fixture
def checkout(client, tmp_path: Path) -> Iterator[Checkout]:
    yield Checkout(tmp_path / "checkout")
    for image in client.images.list(name=TAG):
        for tag in image.tags:
            if tag.startswith(TAG):
                client.images.remove(tag, noprune=True)


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    return done.stderr.strip().splitlines()[-1]


def test_a_build_gives_both_tags_and_prints_only_them(checkout):
    done = checkout.build("infer")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{TAG}:infer\n{TAG}:infer-torch2.6.0-cu124-py311-debian12\n"


def test_a_failed_gate_leaves_the_old_tag_and_says_what_failed(checkout, client):
    assert checkout.build("infer").returncode == 0
    before = client.images.get(f"{TAG}:infer").id
    checkout.edit("images/infer/image.yaml", "budget_mb: 1", "budget_mb: 1\nimports: [no_such_package]")
    checkout.edit("images/infer/image.yaml", "title: torch-pool infer", "title: another title")
    done = checkout.build("infer")
    assert done.returncode == 1
    refused = f"the gate refused {TAG}:infer: failed imports: expected none, found no_such_package"
    assert refused in last_line(done)
    assert client.images.get(f"{TAG}:infer").id == before


def test_a_base_whose_torch_is_not_the_tables_is_refused(checkout, client):
    client.images.get("torch-pool-base:wheels").tag("torch-pool-test", "other")
    row = "  other:\n    <<: *runtime\n    reference: torch-pool-test:other\n"
    path = "    python_path: /usr/bin/python3.11\n"
    checkout.edit("images/bases.yaml", "  wheels:\n", f"{row}{path}  wheels:\n")
    done = checkout.build("infer", BASE="other")
    client.images.remove("torch-pool-test:other", noprune=True)
    assert done.returncode == 1
    expected = "expected torch 2.6.0+cu118 for CUDA 11.8, found torch 2.6.0+cu124 for CUDA 12.4"
    assert expected in last_line(done)


def test_any_reference_can_be_a_base(checkout, client):
    client.images.get("torch-pool-base:wheels").tag("torch-pool-test", "mine")
    done = checkout.build("infer", BASE="torch-pool-test:mine")
    client.images.remove("torch-pool-test:mine", noprune=True)
    client.images.remove("torch-pool-base:torch-pool-test-mine", noprune=True)
    assert done.returncode == 0, done.stderr


def test_a_name_that_something_else_has_is_not_taken(checkout, client):
    client.images.get("torch-pool-base:wheels").tag(TAG, "infer")
    before = client.images.get(f"{TAG}:infer").id
    done = checkout.build("infer")
    assert done.returncode == 78
    assert last_line(done).startswith(
        f"torch-pool: the name {TAG}:infer is taken by an image that is not ours"
    )
    assert client.images.get(f"{TAG}:infer").id == before


def test_a_content_tag_that_something_else_has_is_not_taken_either(checkout, client):
    name = "infer-torch2.6.0-cu124-py311-debian12"
    client.images.get("torch-pool-base:wheels").tag(TAG, name)
    done = checkout.build("infer")
    assert done.returncode == 78
    assert f"the name {TAG}:{name} is taken by an image that is not ours" in last_line(done)
    assert client.images.get(f"{TAG}:{name}").id == client.images.get("torch-pool-base:wheels").id


def test_a_gate_that_asks_for_more_is_asked_again_though_the_image_is_the_same(checkout):
    assert checkout.build("infer").returncode == 0
    checkout.edit("images/infer/image.yaml", "budget_mb: 1", "budget_mb: 1\nimports: [no_such_package]")
    assert checkout.build("infer").returncode == 1


def test_a_platform_that_the_base_is_not_made_for_is_refused_before_anything_starts(checkout):
    done = checkout.build("infer", PLATFORM="linux/arm64")
    assert done.returncode == 64
    assert "the base wheels is made for linux/amd64" in last_line(done).replace("cuda12.4-runtime", "wheels")


def test_an_interrupted_gate_ends_with_130_and_leaves_no_candidate(checkout, client):
    checkout.edit("images/infer/image.yaml", "title: torch-pool infer", f"title: {checkout.folder.name}")
    process = checkout.start("infer")
    wait_for_line(process, lambda line: "unpacking to docker.io/library/torch-pool-candidate" in line)
    before = {container.id for container in client.containers.list(all=True)}
    while not {container.id for container in client.containers.list(all=True)} - before:
        assert process.poll() is None
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate()
    assert process.returncode == 130, output
    assert "Traceback" not in output


def test_an_index_that_cannot_be_reached_fails_the_build_in_one_sentence(checkout):
    """C37: no second index, so no wrong wheel."""
    checkout.install_anew()
    done = checkout.build("nlp", PIP_INDEX_URL="http://127.0.0.1:9/simple")
    assert done.returncode == 1
    assert "cannot be reached; check the network and the proxy of this machine" in last_line(done)
    assert checkout.build("nlp").returncode == 0


def test_a_registry_that_cannot_be_reached_names_the_tag_its_source_and_the_known_tags(checkout):
    done = checkout.build("infer", BASE="127.0.0.1:9/pytorch/pytorch:2.6.0-cuda99")
    assert done.returncode != 0
    assert "the base 127.0.0.1:9/pytorch/pytorch:2.6.0-cuda99 cannot be had" in last_line(done)
    assert "BASE=127.0.0.1:9/pytorch/pytorch:2.6.0-cuda99 from the shell" in last_line(done)
    assert "2.6.0-cuda12.4-cudnn9-runtime" in last_line(done)


@pytest.fixture
def refusing_registry() -> Iterator[str]:
    """A registry that answers every request with 401."""

    class Refuse(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(401)
            self.end_headers()

        do_HEAD = do_GET  # noqa: N815 -- the name that the server looks for

        def log_message(self, *_: object) -> None:
            pass

    yield from serve(Refuse, None)


@pytest.fixture
def untrusted_index(tmp_path: Path) -> Iterator[str]:
    """An index whose certificate nobody signed but itself, reachable from a build's network."""
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=index"]
    subprocess.run([*command, "-keyout", key, "-out", certificate], capture_output=True, check=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    yield from serve(http.server.SimpleHTTPRequestHandler, context)


def serve(handler: type[http.server.BaseHTTPRequestHandler], context: ssl.SSLContext | None) -> Iterator[str]:
    """Serves on every address of this host; yields the port."""
    server = http.server.ThreadingHTTPServer(("0.0.0.0", 0), handler)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a refused handshake is wanted here
    if context:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield str(server.server_address[1])
    server.shutdown()
    server.server_close()


def test_a_registry_that_refuses_says_so(checkout, refusing_registry):
    done = checkout.build("infer", BASE=f"127.0.0.1:{refusing_registry}/pytorch/pytorch:2.6.0")
    assert done.returncode != 0
    assert "refuses; log in to it (docker login)" in last_line(done)


def test_an_untrusted_certificate_is_named_with_the_setting_that_cures_it(checkout, untrusted_index, client):
    gateway = client.networks.get("bridge").attrs["IPAM"]["Config"][0]["Gateway"]
    checkout.install_anew()
    done = checkout.build("nlp", PIP_INDEX_URL=f"https://{gateway}:{untrusted_index}/simple")
    assert done.returncode == 1
    assert "certificate is not trusted; name the CA bundle of this network with CA_BUNDLE=" in last_line(done)


def wait_for_line(process: subprocess.Popen[str], found: Callable[[str], bool]) -> None:
    assert process.stdout
    assert any(found(line) for line in process.stdout), "the build ended before that"


def test_a_killed_build_leaves_nothing_behind_and_the_next_one_works(checkout):
    checkout.install_anew()
    process = checkout.start("nlp")
    wait_for_line(process, lambda line: "packages.sh" in line)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    done = checkout.build("nlp")
    assert done.returncode == 0, done.stderr


def test_an_interrupted_build_ends_with_130_and_one_line(checkout):
    checkout.install_anew()
    process = checkout.start("nlp")
    wait_for_line(process, lambda line: "packages.sh" in line)
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate()
    assert process.returncode == 130
    assert "Traceback" not in output
    assert output.strip().splitlines()[-1].startswith("torch-pool: interrupted")


def test_two_builds_of_one_image_at_once_wait_for_each_other(checkout):
    first, second = checkout.start("infer"), checkout.start("infer")
    outputs = [process.communicate()[0] for process in (first, second)]
    assert [first.returncode, second.returncode] == [0, 0], outputs
    assert all(output.endswith(f"{TAG}:infer-torch2.6.0-cu124-py311-debian12\n") for output in outputs)


def test_builds_of_two_images_at_once_both_work(checkout):
    first, second = checkout.start("train"), checkout.start("shared")
    outputs = [process.communicate()[0] for process in (first, second)]
    assert [first.returncode, second.returncode] == [0, 0], outputs


def test_an_edited_profile_adds_one_small_layer_and_installs_nothing(checkout, client):
    assert checkout.build("nlp").returncode == 0
    before = client.images.get(f"{TAG}:nlp").attrs["RootFS"]["Layers"]
    checkout.edit("entrypoint/profiles/nlp.yaml", "summary: ", "summary: Edited, ")
    done = checkout.build("nlp")
    assert done.returncode == 0, done.stderr
    after = client.images.get(f"{TAG}:nlp")
    assert "packages.sh" in done.stderr
    new = [layer for layer in after.attrs["RootFS"]["Layers"] if layer not in before]
    assert len(new) <= 2
    sizes = [entry["Size"] for entry in after.history()[:6]]
    assert "Prepared" not in done.stderr
    assert max(sizes) < 1_100_000
