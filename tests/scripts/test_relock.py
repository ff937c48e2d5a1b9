import re
from pathlib import Path

import pytest
from torch_pool.refusal import Refusal

from scripts import relock
from scripts.images import ROOT
from scripts.relock import Lock, list_locks, resolve, uv_environment
from scripts.settings import resolve_settings

LOCKS = list_locks()
INDEX = "https://user:secret@index.example/simple"


@pytest.fixture
def uv(program, monkeypatch, tmp_path):
    """The resolver, a checkout with a lock of a base, and a machine whose pip has an index of its own."""

    def put(then=""):
        found = program("uv", then)
        monkeypatch.setattr(relock, "uv_binary", lambda: found.path)
        return found

    (tmp_path / "base.txt").write_text(
        "torch==2.6.0 \\\n    --hash=sha256:0\n    # via -r base.in\nnumpy==2.0\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", INDEX)
    return put


def test_uv_asks_the_index_of_this_machines_pip_with_its_certificates(uv, tmp_path):
    program, bundle = uv(), tmp_path / "ca.pem"
    bundle.write_text("-----BEGIN CERTIFICATE-----\n")
    environ = uv_environment(resolve_settings({"CA_BUNDLE": str(bundle)}, ""), {"HOME": "/h"})
    resolve(Lock(Path("a.in"), Path("a.txt")), environ, tmp_path)
    (call,) = program.calls
    assert call.environ["UV_DEFAULT_INDEX"] == INDEX
    assert call.environ["SSL_CERT_FILE"] == str(bundle)
    assert call.environ["HOME"] == "/h"
    assert call.arguments[-3:] == ["a.in", "-o", "a.txt"]


def test_without_an_index_of_pip_uv_keeps_its_own(uv, monkeypatch):
    uv()
    monkeypatch.delenv("PIP_INDEX_URL")
    assert uv_environment(resolve_settings({}, ""), {"UV_DEFAULT_INDEX": "own"})["UV_DEFAULT_INDEX"] == "own"


def test_a_set_upon_a_base_keeps_its_versions_and_leaves_out_its_packages(uv, tmp_path):
    program = uv()
    resolve(Lock(Path("a.in"), Path("a.txt"), (), Path("base.txt")), {}, tmp_path)
    (call,) = program.calls
    wanted = {"--constraint=base.txt", "--no-emit-package=torch", "--no-emit-package=numpy"}
    assert wanted <= set(call.arguments)


def test_a_set_without_a_solution_is_refused_with_the_last_words_and_no_password(uv, tmp_path):
    uv(f"sys.exit('error: cannot reach\\n{INDEX}/x/')")
    with pytest.raises(Refusal) as refusal:
        resolve(Lock(Path("a.in"), Path("a.txt")), {}, tmp_path)
    text = "a.in cannot be resolved: error: cannot reach https://***@index.example/simple/x/"
    assert (str(refusal.value), refusal.value.status) == (text, 69)


def test_a_dry_run_only_says_what_it_would_do(uv, capsys):
    program = uv()
    assert relock.main(resolve_settings({"DRY_RUN": "1"}, "")) == 0
    assert capsys.readouterr().err.splitlines() == [
        f"would resolve {lock.source} into {lock.lock}" for lock in LOCKS
    ]
    assert program.calls == []


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: str(lock.lock))
def test_a_committed_lock_has_the_form_that_make_lock_writes(lock):
    blocks = re.split(r"(?m)^(?=[a-z0-9])", (ROOT / lock.lock).read_text("utf-8"))[1:]
    assert blocks
    assert [
        block for block in blocks if "\n    --hash=sha256:" not in block or "\n    # via" not in block
    ] == []
    sources = re.findall(r"(?m)^    #(?: via|  ) -r (.+)$", "".join(blocks))
    assert set(sources) == {str(lock.source)}
