import io
import re
from pathlib import Path

import pytest
from torch_pool.refusal import Refusal

from scripts.settings import (
    NAMES,
    Setting,
    Settings,
    choose_profile,
    load_settings,
    parse_env_file,
    print_settings,
    resolve_settings,
)

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("environ", "env_file", "expected"),
    [
        ({}, "", Setting("BASE", "auto", "default")),
        ({}, "BASE=wheels", Setting("BASE", "wheels", ".env")),
        ({"BASE": "cu118"}, "", Setting("BASE", "cu118", "shell")),
        ({"BASE": "cu118"}, "BASE=wheels", Setting("BASE", "cu118", "shell", "overrides wheels in .env")),
        ({"BASE": "wheels"}, "BASE=wheels", Setting("BASE", "wheels", "shell")),
        ({"TORCH_POOL_CLI_BASE": "cu126"}, "", Setting("BASE", "cu126", "command line")),
        (
            {"TORCH_POOL_CLI_BASE": "cu126", "BASE": "cu118"},
            "BASE=wheels",
            Setting("BASE", "cu126", "command line"),
        ),
        ({"TORCH_POOL_CLI_BASE": "$(id)"}, "", Setting("BASE", "$(id)", "command line")),
        (
            {"BASE": ""},
            "BASE=wheels",
            Setting("BASE", "auto", "default, as it is empty in the shell", "overrides wheels in .env"),
        ),
        ({}, "BASE=", Setting("BASE", "auto", "default, as it is empty in .env")),
        ({"CUDA_VERSION": "11.2", "TAG": "latest"}, "", Setting("BASE", "auto", "default")),
    ],
)
def test_the_nearest_place_wins_and_is_named(environ, env_file, expected):
    assert resolve_settings(environ, env_file).base == expected


@pytest.mark.parametrize(
    ("environ", "env_file", "message"),
    [
        ({"TORCH_POOL_CLI_PROFIL": "infer"}, "", "the command line sets PROFIL, .* did you mean PROFILE?"),
        ({}, "\nBASE_REGISTY=x", ".env line 2 sets BASE_REGISTY, .* did you mean BASE_REGISTRY?"),
        ({}, "COLOUR=red", ".env line 1 sets COLOUR, which is no setting. Known: PROFILE, BASE"),
        ({}, "DRY_RUN=yes", "DRY_RUN is yes (from .env), but must be 0 or 1"),
        ({"ENGINE": "podman"}, "", "ENGINE is podman (from the shell), but must be auto or none"),
        ({"TORCH_POOL_CLI_NO_CACHE": "a\nb"}, "", r"NO_CACHE is 'a\nb' (from the command line), but must"),
    ],
)
def test_a_wrong_name_or_value_is_refused_with_its_place(environ, env_file, message):
    with pytest.raises(Refusal) as refusal:
        resolve_settings(environ, env_file)
    pattern = ".*".join(re.escape(part) for part in message.split(".*"))
    assert re.match(pattern, str(refusal.value))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("BASE=wheels", "wheels"),
        ("  BASE = wheels  ", "wheels"),
        ("BASE=wheels # for now", "wheels"),
        ("BASE=a#b", "a#b"),
        ("BASE=# nothing", ""),
        ("BASE='a b'", "a b"),
        ('BASE="a # b"  # c', "a # b"),
        ("BASE=''", ""),
        ("BASE=$HOME`id`", "$HOME`id`"),
        ("BASE=a=b", "a=b"),
        ('BASE=it"s', 'it"s'),
    ],
)
def test_env_file_values_are_taken_literally(line, value):
    assert parse_env_file(f"# comment\n\n{line}\r\n") == {"BASE": value}


@pytest.mark.parametrize(
    "text",
    ["BASE", "=x", "BASE='x", "BASE='x\"", 'BASE="x" y', "export BASE=x", "BASE=x\nBASE=y", "BASE=a\0b"],
)
def test_a_line_of_another_form_is_refused_with_its_number(text):
    with pytest.raises(Refusal, match=r"^\.env line [12] "):
        parse_env_file(text)


@pytest.mark.parametrize("content", [b"BASE=\xff", None])
def test_an_unreadable_env_file_is_refused(tmp_path, content):
    path = tmp_path / ".env"
    path.mkdir() if content is None else path.write_bytes(content)
    with pytest.raises(Refusal, match="cannot be read as text"):
        load_settings({}, tmp_path)


def test_an_env_file_is_optional(tmp_path):
    assert load_settings({}, tmp_path) == resolve_settings({}, "")


@pytest.mark.parametrize("value", ["", "nope", "a b", "../x", ";id", "$(touch x)", "`id`", "a\nb", "'", '"'])
def test_no_profile_but_a_known_one_is_accepted(value):
    with pytest.raises(Refusal, match=r"^PROFILE is .*Known: infer, train$") as refusal:
        choose_profile(Setting("PROFILE", value, "command line"), {"train", "infer"})
    assert refusal.value.status == 64
    assert "\n" not in str(refusal.value)


def test_a_known_profile_is_chosen():
    assert choose_profile(Setting("PROFILE", "infer", "shell"), {"train", "infer"}) == "infer"


def test_a_misspelt_profile_is_told_what_was_meant():
    with pytest.raises(Refusal, match=r"PROFILE is infr .*; did you mean infer\?"):
        choose_profile(Setting("PROFILE", "infr", "shell"), {"train", "infer"})


def test_every_value_is_printed_with_its_origin():
    out = io.StringIO()
    print_settings(resolve_settings({"BASE": "cu118"}, "BASE=wheels\nREGISTRY=a b"), out)
    lines = [re.split(r"\s{2,}", line) for line in out.getvalue().splitlines()]
    assert [line[0] for line in lines] == [row.name for row in NAMES]
    assert lines[1] == ["BASE", "cu118", "shell, overrides wheels in .env"]
    assert lines[2] == ["REGISTRY", "'a b'", ".env"]


def test_each_field_is_the_setting_of_its_name():
    assert [row.name.lower() for row in NAMES] == list(Settings._fields)


def test_the_example_file_shows_every_name_with_its_default_and_meaning():
    example = (ROOT / ".env.example").read_text()
    expected = [f"# {row.help}\n#{row.name}={row.default}" for row in NAMES]
    assert re.findall(r"^# .*\n#[A-Z_]+=.*$", example, re.MULTILINE) == expected
    assert parse_env_file(example) == {}
