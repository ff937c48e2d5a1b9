import pytest
from torch_pool.launch import CONF, LAUNCHED, record
from torch_pool.profile import Profile
from torch_pool.provenance import Earlier, given_by_user, parse_record, read_earlier
from torch_pool.resolution import Chosen, Setting, resolve
from torch_pool.settings import Settings

ASYNC, NATIVE, EXPANDABLE = "backend:cudaMallocAsync", "backend:native", "expandable_segments:True"
PLACES = {"allocator": "base.yaml:2", "memory": "shared.yaml:4", "env": "x.yaml:3"}
BAKED = Profile("infer", "x", {"backend": "cudaMallocAsync"}, {}, PLACES)
OTHER = Profile("other", "x", {"expandable_segments": "True"}, {}, PLACES)
NAMED = Chosen(OTHER, "TORCH_POOL_PROFILE=other")
BEATEN = f"the allocator of profile other ({EXPANDABLE})"
USERS_REASON = "given with -e or a derived image's ENV, used as it is"


def resolved(given=None, settings=Settings(), chosen=Chosen(BAKED)):  # noqa: B008 - both are immutable
    return resolve(given or {}, settings, chosen, "2.6.0+cu124")


def warnings(resolution):
    return [finding.message for finding in resolution.findings if finding.severity == "warn"]


@pytest.mark.parametrize(
    ("given", "settings", "chosen", "conf"),
    [
        ({}, Settings(), Chosen(BAKED), Setting(CONF, ASYNC, "baked profile", "allocator in base.yaml:2")),
        ({}, Settings(), NAMED, Setting(CONF, EXPANDABLE, NAMED.source, "allocator in base.yaml:2")),
        (
            {},
            Settings(allocator="native"),
            NAMED,
            Setting(CONF, NATIVE, "TORCH_POOL_ALLOCATOR", "the word native"),
        ),
        ({CONF: NATIVE}, Settings(allocator="async"), NAMED, Setting(CONF, NATIVE, "-e", USERS_REASON)),
        ({CONF: ""}, Settings(allocator="async"), NAMED, Setting(CONF, "", "-e", USERS_REASON)),
    ],
    ids=["baked", "named profile", "word over profile", "-e over all", "an empty -e is a value"],
)
def test_the_conf_comes_from_the_highest_source(given, settings, chosen, conf):
    assert resolved(given, settings, chosen).settings[0] == conf


@pytest.mark.parametrize(
    ("given", "settings", "chosen", "expected"),
    [
        ({}, Settings(), NAMED, []),
        ({}, Settings(allocator="native"), Chosen(BAKED), []),
        ({CONF: NATIVE}, Settings(allocator="native"), Chosen(BAKED), []),
        (
            {CONF: NATIVE},
            Settings(allocator="async"),
            Chosen(BAKED),
            [f"-e {CONF}={NATIVE} overrules TORCH_POOL_ALLOCATOR=async; remove one of them"],
        ),
        (
            {},
            Settings(allocator="native"),
            NAMED,
            [f"TORCH_POOL_ALLOCATOR=native overrules {BEATEN}; remove one of them"],
        ),
    ],
    ids=["one word", "the baked profile is no word of the user's", "agreement", "-e", "word"],
)
def test_the_user_is_warned_where_two_of_his_words_disagree(given, settings, chosen, expected):
    found = resolved(given, settings, chosen).findings
    assert [finding.message for finding in found if finding.code == "overruled"] == expected


def test_only_a_word_of_the_users_insists_on_an_allocator():
    assert not resolved().insisted
    assert not resolved(chosen=NAMED).insisted
    assert resolved({CONF: NATIVE}).insisted
    assert resolved(settings=Settings(allocator="async")).insisted


def test_a_conf_that_torch_refuses_is_refused_and_its_source_named():
    findings = resolved({CONF: f'"{ASYNC}"'}).findings
    assert [(f.severity, f.code, f.key) for f in findings if f.code == "literal-quotes"] == [
        ("refuse", "literal-quotes", CONF)
    ]
    assert findings[0].message.startswith(f"-e {CONF}: ")
    assert "--env-file" in findings[0].message


def test_variables_beside_the_conf_are_judged():
    codes = [finding.code for finding in resolved({"PYTORCH_NO_CUDA_MEMORY_CACHING": "0"}).findings]
    assert codes == ["caching-disabled"]


def test_a_memory_cap_of_the_user_beats_that_of_the_profile():
    chosen = Chosen(BAKED._replace(memory="0.5"))
    own = Setting("TORCH_POOL_MEMORY", "0.5", "baked profile", "memory in shared.yaml:4")
    assert resolved(chosen=chosen).settings[1:] == (own,)
    assert resolved(settings=Settings(memory="20GiB"), chosen=chosen).settings[1].value == "20GiB"
    assert resolved().settings[1:] == ()


def test_further_variables_are_set_only_where_the_user_set_none():
    chosen = Chosen(BAKED._replace(env={"A": "profile", "B": "profile", "C": "profile"}))
    resolution = resolved({"A": "user", "B": ""}, chosen=chosen)
    assert resolution.settings[1:] == (Setting("C", "profile", "baked profile", "env in x.yaml:3"),)


# Provenance


@pytest.mark.parametrize(
    ("environ", "given"),
    [
        ({"A": "b"}, {"A": "b"}),
        ({CONF: ASYNC}, {}),
        ({CONF: NATIVE}, {CONF: NATIVE}),
        ({CONF: ""}, {CONF: ""}),
        ({CONF: NATIVE, "B": "c", LAUNCHED: record("nlp", {CONF: NATIVE})}, {"B": "c"}),
        ({CONF: EXPANDABLE, LAUNCHED: record("nlp", {CONF: NATIVE})}, {CONF: EXPANDABLE}),
        ({LAUNCHED: record("nlp", {CONF: NATIVE})}, {}),
        ({CONF: NATIVE, LAUNCHED: "%%%"}, {CONF: NATIVE}),
        ({CONF: NATIVE, LAUNCHED: ""}, {CONF: NATIVE}),
    ],
    ids=[
        "other variables",
        "the image's ENV",
        "the user's, or a derived image's ENV",
        "an empty value",
        "made by a launch",
        "changed since the launch",
        "unset since the launch",
        "a record that no launch wrote",
        "an empty record",
    ],
)
def test_what_the_image_or_a_launch_set_is_not_the_users(environ, given):
    assert given_by_user(environ, ASYNC) == given


@pytest.mark.parametrize(
    "value", ["", "a b", "50%", "%20", "a+b c", "%2B", "a=b", "two\nlines", "ü", "\udcff"], ids=ascii
)
def test_a_record_of_what_was_made_can_be_read_again(value):
    assert parse_record(record("nlp", {"A": value, "B": "2"})) == Earlier("nlp", {"A": value, "B": "2"})


def test_blanks_make_a_record_no_longer():
    """A value may be nearly as long as the kernel allows for one variable (128 KiB)."""
    assert len(record("nlp", {"A": " " * 1000})) == len("nlp A=") + 1000


def test_only_what_still_stands_counts_as_made():
    environ = {"A": "1", "B": "changed", LAUNCHED: record("nlp", {"A": "1", "B": "2", "C": "3"})}
    assert read_earlier(environ) == Earlier("nlp", {"A": "1"})
