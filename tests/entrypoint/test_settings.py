import pytest
from torch_pool.refusal import Refusal
from torch_pool.settings import KNOWN, Settings, is_service_link, read_settings


@pytest.mark.parametrize(
    ("environ", "settings"),
    [
        ({}, Settings()),
        (dict.fromkeys(KNOWN, ""), Settings()),
        (
            {
                "TORCH_POOL_PROFILE": "nlp",
                "TORCH_POOL_ALLOCATOR": "native",
                "TORCH_POOL_DEVICES": "0,1",
                "TORCH_POOL_MEMORY": "0.5",
                "TORCH_POOL_STRICT": "1",
                "TORCH_POOL_PROBE": "0",
                "TORCH_POOL_LOCK_DIR": "/locks",
                "TORCH_POOL_LOG": "quiet",
            },
            Settings("nlp", "native", "0,1", "0.5", strict=True, probe=False, lock_dir="/locks", log="quiet"),
        ),
        ({"TORCH_POOL_STRICT": "0", "TORCH_POOL_PROBE": "1"}, Settings()),
    ],
    ids=["nothing", "empty is unset", "everything", "switched the other way"],
)
def test_settings_are_read_from_the_environment(environ, settings):
    assert read_settings(environ) == settings


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("TORCH_POOL_ALLOCATOR", "asynch", "is not one of async, native, expandable; did you mean async?"),
        ("TORCH_POOL_STRICT", "yes", "TORCH_POOL_STRICT='yes' is not one of 1, 0"),
        ("TORCH_POOL_LOG", "verbose", "is not one of text, json, quiet"),
        (
            "TORCH_POOL_MEMORY",
            "20GB",
            "TORCH_POOL_MEMORY='20GB' is no cap: give a share such as 0.5 or a size",
        ),
        ("TORCH_POOL_MEMORY", "1.0", "is no cap"),
        (
            "TORCH_POOL_PROFILE",
            '"nlp"',
            'TORCH_POOL_PROFILE="nlp" has quotes in its value: remove them (docker run',
        ),
        ("TORCH_POOL_STRICT", "'1'", "--env-file keeps quotes"),
    ],
)
def test_a_value_that_cannot_be_meant_is_refused(name, value, message):
    with pytest.raises(Refusal) as caught:
        read_settings({name: value})
    assert message in str(caught.value)


def test_an_unknown_setting_gives_a_warning_with_the_nearest_name():
    (finding,) = read_settings({"TORCH_POOL_STRCT": "1"}).findings
    assert (finding.severity, finding.message) == (
        "warn",
        "TORCH_POOL_STRCT is not a setting of torch-pool and has no effect; did you mean TORCH_POOL_STRICT?",
    )


@pytest.mark.parametrize(
    "name",
    [
        "TORCH_POOL_SERVICE_HOST",
        "TORCH_POOL_SERVICE_PORT_HTTP",
        "TORCH_POOL_PORT",
        "TORCH_POOL_PORT_8000_TCP_ADDR",
        "TORCH_POOL_METRICS_PORT",
    ],
)
def test_links_that_kubernetes_makes_for_a_service_are_ignored(name):
    assert is_service_link(name)
    assert read_settings({name: "tcp://10.0.0.1:80"}) == Settings()


def test_no_setting_of_ours_looks_like_a_service_link():
    assert not any(map(is_service_link, KNOWN))
