import os

import pytest
from torch_pool import home, launch
from torch_pool.home import Home, may_hold_code, private_directory, settle_home

UNKNOWN = 2_000_000_123
ME = os.getuid()
needs_root = pytest.mark.skipif(ME != 0, reason="another owner needs root")


@pytest.fixture
def places(tmp_path, monkeypatch):
    """A home and a /tmp that work, and one more place; tests break what they are about."""
    for name in ("home", "tmp", "spare"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(launch, "TMP", str(tmp_path / "tmp"))
    return tmp_path


def settle(places, given, uid=ME):
    return settle_home(given, uid, [str(places / "tmp"), str(places / "spare")])


def values(settled):
    return {setting.name: setting.value for setting in settled.settings}


def test_nothing_is_set_or_written_where_everything_works(places):
    assert settle(places, {"HOME": str(places / "home")}) == Home((), ())
    assert [list((places / name).iterdir()) for name in ("home", "tmp", "spare")] == [[], [], []]


def test_a_uid_without_a_name_gets_one(places, monkeypatch):
    """Case C21: getpass.getuser() raises KeyError, and torch inductor asks it."""
    monkeypatch.setattr(home, "login_name", lambda _: None)
    assert values(settle(places, {"HOME": str(places / "home")})) == {
        "USER": f"uid{ME}",
        "LOGNAME": f"uid{ME}",
    }


@pytest.mark.parametrize(
    ("given", "set_for_him"),
    [
        ({"USER": "ann", "LOGNAME": "ann"}, {}),
        ({"USER": "ann"}, {"LOGNAME": "ann"}),
        ({"USER": "", "LOGNAME": "ann"}, {"USER": "ann"}),
    ],
)
def test_a_name_that_the_user_gave_is_kept(places, monkeypatch, given, set_for_him):
    monkeypatch.setattr(home, "login_name", lambda _: None)
    assert values(settle(places, {**given, "HOME": str(places / "home")})) == set_for_him


@pytest.mark.parametrize(
    "given", [{}, {"HOME": ""}, {"HOME": "/no/such/home"}], ids=["unset", "empty", "missing"]
)
def test_a_home_that_cannot_be_written_is_replaced_or_its_caches_are(places, given):
    settled = values(settle(places, given))
    private = places / "tmp" / f".torch-pool-{ME}"
    assert settled.get("HOME", str(private / "home")) == str(private / "home")
    assert settled["TRITON_CACHE_DIR"] == str(private / "triton")
    assert private.stat().st_mode & 0o777 == 0o700


def test_a_home_of_the_users_own_is_kept_and_only_the_caches_move(places):
    settled = values(settle(places, {"HOME": "/proc/self/no-home"}))
    assert set(settled) == {"HF_HOME", "MPLCONFIGDIR", "TRITON_CACHE_DIR"}


def test_a_cache_that_the_user_placed_is_kept(places):
    given = {"HOME": "/proc/self/x", "TRITON_CACHE_DIR": "/mine", "HF_HOME": "", "MPLCONFIGDIR": "/mine"}
    assert values(settle(places, given)) == {}


def test_nowhere_to_write_is_a_warning_with_a_way_out(tmp_path, monkeypatch):
    monkeypatch.setattr(home, "TMP", "/proc/self/no-tmp")
    settled = settle_home({"HOME": "/proc/self"}, ME, ["/proc/self"])
    assert [finding.code for finding in settled.findings] == ["no-writable-directory"]
    assert "--tmpfs /tmp:exec" in settled.findings[0].message


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o750])
def test_a_cache_of_ones_own_may_hold_code(tmp_path, mode):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(mode)
    assert may_hold_code(str(tmp_path / "cache"), ME)


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777])
def test_a_cache_that_others_can_write_may_not(tmp_path, mode):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(mode)
    assert not may_hold_code(str(tmp_path / "cache"), ME)


def test_a_link_or_a_file_may_not_hold_code(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "file").write_text("")
    assert not may_hold_code(str(tmp_path / "link"), ME)
    assert not may_hold_code(str(tmp_path / "file"), ME)


@needs_root
def test_the_cache_of_another_user_may_not_hold_code_even_for_root(tmp_path):
    (tmp_path / "cache").mkdir(mode=0o755)
    os.chown(tmp_path / "cache", 1000, 1000)
    assert not may_hold_code(str(tmp_path / "cache"), 0)


def test_a_private_directory_is_used_again(tmp_path):
    assert private_directory(str(tmp_path), ME) == private_directory(str(tmp_path), ME)


def test_a_link_where_the_private_directory_should_be_is_not_followed(tmp_path):
    (tmp_path / "trap").mkdir(mode=0o700)
    (tmp_path / f".torch-pool-{ME}").symlink_to(tmp_path / "trap")
    assert private_directory(str(tmp_path), ME) is None


def test_a_private_directory_that_others_may_enter_is_not_used(tmp_path):
    (tmp_path / f".torch-pool-{ME}").mkdir()
    (tmp_path / f".torch-pool-{ME}").chmod(0o755)
    assert private_directory(str(tmp_path), ME) is None


@needs_root
def test_a_private_directory_of_another_owner_is_not_used(tmp_path):
    path = tmp_path / f".torch-pool-{ME}"
    path.mkdir(mode=0o700)
    os.chown(path, 1000, 1000)
    assert private_directory(str(tmp_path), ME) is None


def test_the_next_place_is_taken_when_the_first_is_trapped(places):
    (places / "tmp" / f".torch-pool-{ME}").symlink_to("/etc")
    assert values(settle(places, {"HOME": ""}))["HOME"] == str(
        places / "spare" / f".torch-pool-{ME}" / "home"
    )
