from dataclasses import replace

import pytest
from torch_pool.refusal import Refusal

from scripts.containers import Outcome
from scripts.gate import CHECKS, OCI_LABELS, judge, require_passed
from tests.scripts.passing import (
    BASE_FACTS,
    ENVIRONMENT,
    LABELS,
    PROFILE,
    PROVED,
    READY_BASE,
    evidence,
    facts,
    image_config,
    selftest,
)

SELFTEST = "proved without a GPU"
NATIVE = PROFILE._replace(allocator={"expandable_segments": "True"})
SMALL_BASE = replace(READY_BASE, unpacked_bytes=5_000_100_000)
ANY_BASE = replace(READY_BASE, base=replace(READY_BASE.base, torch="", cuda="", budget_mb=None))


def env(**changes):
    values = {name: value for name, value in {**ENVIRONMENT, **changes}.items() if value is not None}
    return image_config(environment=values)


def labels(changes):
    return image_config({name: value for name, value in {**LABELS, **changes}.items() if value is not None})


# Check, what is wrong, expected, found.
FAILURES = [
    (
        "torch",
        {"facts": facts(torch="2.5.1+cu124"), "config": labels({"io.torch-pool.torch": "2.5.1+cu124"})},
        "2.6.0+cu124",
        "2.5.1+cu124",
    ),
    (
        "CUDA",
        {"facts": facts(cuda="12.6"), "config": labels({"io.torch-pool.cuda": "12.6"})},
        "12.4",
        "12.6",
    ),
    (
        "copies of torch",
        {"facts": facts(installed={"torch": ["2.6.0", "2.5.1"], "numpy": ["2.4.6"]})},
        "one, 2.6.0",
        "2, 2.6.0, 2.5.1",
    ),
    (
        "copies of torch",
        {"facts": facts(installed={"torch": [], "numpy": ["2.4.6"]})},
        "one, 2.6.0",
        "0, not installed",
    ),
    (
        "copies of numpy",
        {"facts": facts(installed={"torch": ["2.6.0"], "numpy": ["1.26.4"]})},
        "one, 2.4.6",
        "one, 1.26.4",
    ),
    ("unmet needs", {"facts": facts(missing_requirements=("a needs b",))}, "none", "a needs b"),
    ("failed imports", {"facts": facts(failed_imports=("peft: no", "x: no"))}, "none", "peft: no; x: no"),
    ("compiler", {"facts": facts(compiler=False)}, "cc and c++ and Python.h", "Python.h"),
    ("compiler", {"facts": facts(compiler=False, python_headers=False)}, "cc and c++ and Python.h", "none"),
    (
        "labels",
        {"config": labels({"io.torch-pool.conf": "native"})},
        "all, true",
        "io.torch-pool.conf=native for backend:cudaMallocAsync",
    ),
    (
        "labels",
        {"config": labels({"io.torch-pool.cuda": None})},
        "all, true",
        "io.torch-pool.cuda=None for 12.4",
    ),
    *(
        (
            "labels",
            {"config": labels({f"org.opencontainers.image.{name}": None})},
            "all, true",
            f"no {name}",
        )
        for name in OCI_LABELS
    ),
    ("secrets", {"config": env(HTTP_PROXY="http://p.example")}, "none", "HTTP_PROXY"),
    ("secrets", {"config": env(no_proxy="x", SSL_CERT_FILE="/x")}, "none", "no_proxy; SSL_CERT_FILE"),
    ("secrets", {"config": env(HF_TOKEN="x")}, "none", "HF_TOKEN"),
    ("secrets", {"config": env(PIP_INDEX_URL="x")}, "none", "PIP_INDEX_URL"),
    ("secrets", {"config": env(UV_DEFAULT_INDEX="x")}, "none", "UV_DEFAULT_INDEX"),
    ("secrets", {"config": env(REQUESTS_CA_BUNDLE="x")}, "none", "REQUESTS_CA_BUNDLE"),
    ("secrets", {"config": env(AWS_SECRET_ACCESS_KEY="x")}, "none", "AWS_SECRET_ACCESS_KEY"),
    (
        "secrets",
        {"history": ("ENV https_proxy=http://p.example", "COPY a b")},
        "none",
        "ENV https_proxy=http://p.example",
    ),
    (
        "secrets",
        {"history": ("RUN echo -----BEGIN CERTIFICATE-----",)},
        "none",
        "RUN echo -----BEGIN CERTIFICATE-----",
    ),
    (
        "secrets",
        {"history": ("RUN export \\\n  HTTP_PROXY=http://u:password@p.example",)},
        "none",
        "RUN export \\ HTTP_PROXY=http://***@p.example",
    ),
    ("platform", {"platform": "linux/arm64"}, "linux/amd64", "linux/arm64"),
    ("user", {"facts": facts(uid=0)}, "1000:0", "0:0"),
    ("user", {"facts": facts(gid=1000)}, "1000:0", "1000:1000"),
    ("unwritable", {"facts": facts(unwritable=("/workspace",))}, "none", "/workspace"),
    ("wrong modes", {"facts": facts(wrong_modes=("/opt/x 0777",))}, "none", "/opt/x 0777"),
    (
        "echo",
        {"echo": Outcome(0, "banner\ntorch-pool-gate\n", "")},
        "'torch-pool-gate\\n' and status 0",
        "'banner\\ntorch-pool-gate\\n' and status 0",
    ),
    (
        "echo",
        {"echo": Outcome(0, "torch-pool-gate\n\n", "")},
        "'torch-pool-gate\\n' and status 0",
        "'torch-pool-gate\\n\\n' and status 0",
    ),
    (
        "self-test",
        {"selftest": selftest(*PROVED, {"name": "parse", "status": "disproved", "found": "stoi"}, status=1)},
        SELFTEST,
        "parse: stoi",
    ),
    ("self-test", {"selftest": Outcome(127, "", "no")}, SELFTEST, "'' and status 127"),
    (
        "self-test",
        {"selftest": selftest()},
        SELFTEST,
        "settings: not proved; environment: not proved; torch: not proved; backend: not proved",
    ),
    (
        "self-test",
        {"selftest": selftest(*PROVED[:3], {**PROVED[3], "status": "not provable"})},
        SELFTEST,
        "backend: not proved",
    ),
    (
        "self-test",
        {"selftest": selftest(*PROVED[2:], PROVED[0], {**PROVED[1], "status": "note"})},
        SELFTEST,
        "environment: not proved",
    ),
    ("echo", {"echo": Outcome(127, "", "no")}, "'torch-pool-gate\\n' and status 0", "'' and status 127"),
    (
        "echo",
        {"echo": Outcome(None, "torch-pool-gate\n", "")},
        "'torch-pool-gate\\n' and status 0",
        "'torch-pool-gate\\n' and status None",
    ),
    ("backend", {"facts": facts(backend="native")}, "cudaMallocAsync", "native"),
    ("baked conf", {"config": env(PYTORCH_CUDA_ALLOC_CONF=None)}, "backend:cudaMallocAsync", "unset"),
    ("baked conf", {"config": env(PYTORCH_CUDA_ALLOC_CONF="a:b")}, "backend:cudaMallocAsync", "a:b"),
    (
        "NVIDIA variables",
        {"config": env(NVIDIA_VISIBLE_DEVICES="all")},
        "void compute,utility cuda>=12.0",
        "all compute,utility cuda>=12.0",
    ),
    (
        "NVIDIA variables",
        {"config": env(NVIDIA_REQUIRE_CUDA="cuda>=12.4 brand=tesla")},
        "void compute,utility cuda>=12.0",
        "void compute,utility cuda>=12.4 brand=tesla",
    ),
    (
        "NVIDIA variables",
        {"config": env(NVIDIA_REQUIRE_CUDA=None)},
        "void compute,utility cuda>=12.0",
        "void compute,utility unset",
    ),
    ("size of base", {"base": SMALL_BASE}, "at most 5000 MB", "5000.1 MB"),
    ("size added", {"added_bytes": 1_000_100}, "at most 1 MB", "1.0001 MB"),
]


@pytest.mark.parametrize(
    "seeded",
    [
        {},
        {"base": ANY_BASE},
        {"added_bytes": 1_000_000},
        {"base": replace(READY_BASE, unpacked_bytes=5_000_000_000)},
        {"echo": Outcome(0, "torch-pool-gate\n", "a warning of the launch\n")},
    ],
)
def test_an_image_as_it_must_be_passes_every_check(seeded):
    results = judge(evidence(**seeded))
    assert [result.check for result in results if not result.passed] == []
    assert [result.check for result in results] == [name for name, _ in CHECKS]
    require_passed("torch-pool:infer", results)


@pytest.mark.parametrize(("check", "seeded", "expected", "found"), FAILURES)
def test_each_fault_fails_its_own_check_and_no_other(check, seeded, expected, found):
    results = judge(evidence(**seeded))
    assert [(r.check, r.expected, r.found) for r in results if not r.passed] == [(check, expected, found)]
    with pytest.raises(Refusal) as refusal:
        require_passed("torch-pool:infer", results)
    assert refusal.value.status == 1
    assert str(refusal.value) == (
        f"the gate refused torch-pool:infer: {check}: expected {expected}, found {found}; "
        "the previous tag, if any, is untouched"
    )


def test_every_check_can_fail():
    assert {check for check, *_ in FAILURES} == {name for name, _ in CHECKS}


def test_a_profile_with_the_native_allocator_expects_that():
    config = image_config(
        {**LABELS, "io.torch-pool.conf": "expandable_segments:True"},
        {**ENVIRONMENT, "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
    )
    found = evidence(profile=NATIVE, config=config, facts=facts(backend="native"))
    assert [result for result in judge(found) if not result.passed] == []


def test_a_profile_that_sets_more_than_an_env_can_leaves_the_environment_a_note():
    note = selftest({**PROVED[1], "status": "note"}, PROVED[0], *PROVED[2:])
    found = evidence(profile=PROFILE._replace(memory="0.5"), selftest=note)
    assert "self-test" not in [result.check for result in judge(found) if not result.passed]


def test_an_image_without_labels_fails_in_one_line():
    (labels,) = [result for result in judge(evidence(config=image_config(None))) if result.check == "labels"]
    assert "io.torch-pool.profile=None for infer" in labels.found
    assert "no title" in labels.found


def test_further_failures_are_counted_and_named():
    results = judge(evidence(facts=facts(uid=0, torch="2.5.1+cu124", cuda="12.6")))
    with pytest.raises(Refusal, match=r": torch: expected .* \(and 3 more: CUDA, labels, user\);"):
        require_passed("torch-pool:infer", results)


def test_torch_is_compared_with_the_base_where_no_table_knows_it():
    changed = replace(ANY_BASE, facts=replace(BASE_FACTS, torch="2.6.0a0+nv"))
    failed = [result for result in judge(evidence(base=changed)) if not result.passed]
    assert [(result.check, result.expected) for result in failed] == [("torch", "2.6.0a0+nv")]
