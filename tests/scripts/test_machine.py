import shutil
import sys
from pathlib import Path

import pytest
from torch_pool.refusal import Refusal

from scripts.machine import (
    SECRET_BYTES,
    AptSource,
    Fact,
    choose_ca,
    choose_index,
    choose_proxies,
    debian_sources,
    local_index_notes,
    loopback_notes,
    parse_pip_config,
    read_machine,
    read_output,
    require_disk,
    sources_list,
)
from scripts.settings import Setting

NO_SETTING = Setting("CA_BUNDLE", "", "default")
UPDATED = """\
bookworm-security|bookworm-security|main|http://mirror.example/debian-security/|Debian|/etc/apt/a.sources:2
bookworm-updates|bookworm-updates|main|http://mirror.example/debian/|Debian|/etc/apt/a.sources:1
bookworm|bookworm|main|http://tools.example/linux/|Tools|/etc/apt/tools.list:1
bookworm|stable|contrib|http://mirror.example/debian/|Debian|/etc/apt/a.sources:1
bookworm|stable|main|http://mirror.example/debian/|Debian|/etc/apt/a.sources:1
bookworm|stable|main|http://mirror.example/debian/|Debian|/etc/apt/a.sources:1
bookworm|bookworm|main|file:/media/debian/|Debian|/etc/apt/disk.list:1
"""
FRESH = """\
$(CODENAME)|bookworm|main|https://u:p@mirror.example/debian/|$(ORIGIN)|/etc/apt/a.sources:1
"""
SECURITY = ("http://mirror.example/debian-security/", "bookworm-security", ("main",), "/etc/apt/a.sources")


@pytest.mark.parametrize(
    ("targets", "suite", "expected"),
    [
        (
            UPDATED,
            "bookworm",
            (
                ("http://mirror.example/debian/", "bookworm", ("contrib", "main"), "/etc/apt/a.sources"),
                ("http://mirror.example/debian/", "bookworm-updates", ("main",), "/etc/apt/a.sources"),
                SECURITY,
            ),
        ),
        (
            UPDATED,
            "trixie",
            (
                ("http://mirror.example/debian/", "trixie", ("main",), "/etc/apt/a.sources"),
                ("http://mirror.example/debian/", "trixie-updates", ("main",), "/etc/apt/a.sources"),
                (
                    "http://mirror.example/debian-security/",
                    "trixie-security",
                    ("main",),
                    "/etc/apt/a.sources",
                ),
            ),
        ),
        (
            FRESH,
            "bookworm",
            (("https://u:p@mirror.example/debian/", "bookworm", ("main",), "/etc/apt/a.sources"),),
        ),
        ("", "bookworm", ()),
        ("not what apt prints\n", "bookworm", ()),
    ],
    ids=["own suite", "another suite", "before the first update", "no apt", "other output"],
)
def test_the_machines_debian_mirror_is_found_for_a_suite(targets, suite, expected):
    assert debian_sources(targets, suite) == expected


def test_sources_become_a_sources_list():
    sources = (AptSource("http://m/debian/", "bookworm", ("main", "contrib"), "x"), AptSource(*SECURITY))
    assert sources_list(sources) == (
        "deb http://m/debian/ bookworm main contrib\n"
        "deb http://mirror.example/debian-security/ bookworm-security main\n"
    )


PIP = """\
:env:.cert='/etc/ssl/certs/env.crt'
:env:.default-timeout='180'
global.cert='/etc/ssl/certs/global.crt'
global.extra-index-url='file:///opt https://u:secret@x.example/s'
global.find-links='/w'
global.index-url='https://global.example/simple'
install.index-url='https://u:secret@install.example/simple'
freeze.timeout='10'
"""


def test_pips_options_are_taken_in_pips_own_order():
    assert parse_pip_config(PIP) == {
        "cert": "/etc/ssl/certs/env.crt",
        "default-timeout": "180",
        "extra-index-url": "file:///opt https://u:secret@x.example/s",
        "find-links": "/w",
        "index-url": "https://u:secret@install.example/simple",
    }


@pytest.mark.parametrize(
    ("pip", "index", "notes"),
    [
        ({}, None, ()),
        ({"index-url": "https://h/simple"}, Fact("index-url", "https://h/simple", "pip config"), ()),
        ({"index-url": "file:///opt/simple"}, None, ("builds leave out pip's index-url file:///opt/simple",)),
        (
            parse_pip_config(PIP),
            Fact("index-url", "https://u:secret@install.example/simple", "pip config"),
            ("builds leave out pip's extra-index-url file:///opt https://***@x.example/s, find-links /w",),
        ),
    ],
)
def test_only_one_index_that_a_container_can_reach_is_used(pip, index, notes):
    assert (choose_index(pip), local_index_notes(pip)) == (index, notes)


@pytest.mark.parametrize("value", ["/no/such\ntorch-pool: built", "/a b"])
def test_a_ca_bundle_is_shown_on_one_line(value):
    with pytest.raises(Refusal) as refusal:
        choose_ca(Setting("CA_BUNDLE", value, "shell"), {}, {})
    assert str(refusal.value).startswith(f"CA_BUNDLE is {value!r} (from the shell), which is no")
    assert Fact("CA bundle", value, "x").shown == f"CA bundle {value!r} (from x)"


def test_a_fact_is_shown_without_its_credentials():
    assert (
        Fact("index-url", "https://u:p@h/s", "pip config").shown
        == "index-url https://***@h/s (from pip config)"
    )


@pytest.fixture
def pem(tmp_path):
    def write(name, size=0):
        path = tmp_path / name
        path.write_text("-----BEGIN CERTIFICATE-----\n" + "x" * size)
        return str(path)

    return write


def test_the_nearest_certificates_win(pem):
    given = Setting("CA_BUNDLE", pem("set"), "shell")
    environ = {"SSL_CERT_FILE": pem("ssl"), "PIP_CERT": pem("pip"), "REQUESTS_CA_BUNDLE": pem("requests")}
    pip = {"cert": pem("config")}
    chosen = [choose_ca(given, environ, pip), choose_ca(NO_SETTING, environ, pip)]
    for name in ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE"):
        environ[name] = "/no/such/file"
        chosen.append(choose_ca(NO_SETTING, environ, pip))
    assert [(Path(fact.value).name, fact.origin) for fact in chosen] == [
        ("set", "CA_BUNDLE, the shell"),
        ("ssl", "SSL_CERT_FILE"),
        ("pip", "PIP_CERT"),
        ("requests", "REQUESTS_CA_BUNDLE"),
        ("config", "pip config"),
    ]


@pytest.mark.parametrize("value", ["/no/such/file", "/", __file__.replace("test_machine", "test_apt")])
def test_a_ca_bundle_that_is_none_is_refused(value):
    with pytest.raises(Refusal, match=r"^CA_BUNDLE is /.* \(from \.env\), which is no PEM certificate file$"):
        choose_ca(Setting("CA_BUNDLE", value, ".env"), {}, {})


def test_a_ca_bundle_too_large_for_a_secret_is_refused(pem):
    with pytest.raises(Refusal, match=r"too large, as a build secret can hold 512000 bytes"):
        choose_ca(Setting("CA_BUNDLE", pem("big", SECRET_BYTES), "shell"), {}, {})


@pytest.mark.parametrize(
    ("environ", "apt", "expected"),
    [
        ({}, "", ()),
        ({}, "DIRECT", ()),
        ({}, "http://a:1", (Fact("HTTP_PROXY", "http://a:1", "apt's Acquire::http::Proxy"),)),
        (
            {"HTTP_PROXY": "http://u:1", "http_proxy": "http://l:1"},
            "http://a:1",
            (Fact("HTTP_PROXY", "http://u:1", "the shell's HTTP_PROXY"),),
        ),
        (
            {"https_proxy": "http://l:1", "no_proxy": "localhost", "HTTP_PROXY": ""},
            "",
            (
                Fact("HTTPS_PROXY", "http://l:1", "the shell's https_proxy"),
                Fact("NO_PROXY", "localhost", "the shell's no_proxy"),
            ),
        ),
    ],
)
def test_proxies_come_from_the_shell_and_then_from_apt(environ, apt, expected):
    assert choose_proxies(environ, apt) == expected


@pytest.mark.parametrize(
    ("value", "local"),
    [
        ("http://127.0.0.1:3128", True),
        ("http://u:p@localhost:3128", True),
        ("localhost:3128", True),
        ("http://[::1]:3128", True),
        ("http://proxy.example:3128", False),
        ("http://localhost.example:3128", False),
    ],
)
def test_a_proxy_on_the_loopback_is_pointed_out(value, local):
    notes = loopback_notes([Fact("HTTP_PROXY", value, "x"), Fact("NO_PROXY", "localhost", "x")])
    assert len(notes) == local
    assert all("u:p" not in note for note in notes)


def test_a_full_disk_is_refused_with_what_is_needed_and_free(tmp_path):
    require_disk(tmp_path / "not/yet", 1, "building infer")
    free = shutil.disk_usage(tmp_path).free
    needed = f"building infer needs {(free + 10**12) / 1e9:.1f} GB on the disk of"
    with pytest.raises(Refusal, match=needed + r" .*, and \d+\.\d GB are free; make room"):
        require_disk(tmp_path / "not/yet", free + 10**12, "building infer")


def test_a_machine_without_apt_or_pip_settings_has_no_facts_but_its_own(monkeypatch):
    monkeypatch.setenv("PATH", "")
    machine = read_machine(NO_SETTING, "bookworm", {})
    assert (machine.apt_sources, machine.proxies) == ((), ())


def test_a_command_that_fails_or_lacks_says_nothing():
    assert read_output(sys.executable, "-c", "print(1)") == "1\n"
    assert read_output(sys.executable, "-c", "print(1); raise SystemExit(1)") == ""
    assert read_output("/no/such/program") == ""
