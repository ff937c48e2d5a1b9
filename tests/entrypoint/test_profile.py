import json
from pathlib import Path

import pytest
from torch_pool import profile_keys
from torch_pool.profile import Devices, Profile, compile_profile, load_profile, profile_from_values
from torch_pool.refusal import CONFIG, Refusal

ROOT = Path(__file__).parents[2]
PROFILES = ROOT / "entrypoint" / "profiles"
SHIPPED = sorted(path.stem for path in PROFILES.glob("*.yaml"))
MINIMAL = "summary: A test\nallocator: {backend: native}\n"


def load(directory, text, name="mine"):
    path = directory / f"{name}.yaml"
    path.write_text(text)
    return load_profile(str(path), str(PROFILES))


def refusal(directory, text, name="mine"):
    with pytest.raises(Refusal) as caught:
        load(directory, text, name)
    assert caught.value.status == CONFIG
    return str(caught.value).replace(f"{directory}/", "")


def compiled(profile):
    namespace = {}
    exec(compile_profile(profile), namespace)
    return namespace


def shipped(name):
    return load_profile(str(PROFILES / f"{name}.yaml"), str(PROFILES))


def test_the_shipped_profiles_are_the_known_six():
    assert SHIPPED == ["base", "infer", "llm-finetune", "nlp", "shared", "train"]


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_profile_is_async_with_a_way_back_and_claims_no_evidence_that_is_not_there(name):
    profile = shipped(name)
    assert profile.conf == "backend:cudaMallocAsync"
    assert (profile.fallback, profile.gpu, profile.env) == ("expandable", "wanted", {})
    assert profile.evidence is None or (ROOT / profile.evidence.partition("#")[0]).exists()


def test_only_shared_picks_a_gpu_and_caps_memory():
    assert {name: (shipped(name).devices, shipped(name).memory) for name in SHIPPED} == {
        **dict.fromkeys(SHIPPED, (Devices(), None)),
        "shared": (Devices(pick=1, choose="most-free"), "0.5"),
    }


def test_only_training_profiles_ask_for_shared_memory():
    assert {name for name in SHIPPED if shipped(name).shm_bytes} == {"train", "nlp", "llm-finetune"}
    assert shipped("train").shm_bytes == 1 << 30


def test_a_profile_with_every_key_is_read_whole(tmp_path):
    text = """\
summary: Everything at once
extends: base
allocator: {garbage_collection_threshold: 0.8, expandable_segments: true, backend: native}
fallback: none
devices: {count: 2}
memory: 20GiB
gpu: required
env: {OMP_NUM_THREADS: 8, NCCL_DEBUG: WARN, EMPTY: ""}
shm: 512MiB
incompatible: [cuda-ipc]
evidence: docs/benchmarks/mine.md
"""
    assert load(tmp_path, text) == Profile(
        name="mine",
        summary="Everything at once",
        extends="base",
        allocator={"backend": "native", "garbage_collection_threshold": "0.8", "expandable_segments": "True"},
        fallback="none",
        devices=Devices(pick=2),
        memory="20GiB",
        gpu="required",
        env={"OMP_NUM_THREADS": "8", "NCCL_DEBUG": "WARN", "EMPTY": ""},
        shm_bytes=512 << 20,
        incompatible=("cuda-ipc",),
        evidence="docs/benchmarks/mine.md",
        places={key: f"mine.yaml:{line}" for line, key in enumerate(profile_keys.READERS, start=1)},
    )


def test_the_conf_begins_with_the_backend_and_spells_switches_as_torch_does(tmp_path):
    text = "summary: x\nallocator: {expandable_segments: true, backend: native, max_split_size_mb: 512}\n"
    assert load(tmp_path, text).conf == "backend:native,expandable_segments:True,max_split_size_mb:512"


def test_what_is_extended_keeps_its_place_and_what_it_says_of_itself(tmp_path):
    profile = load(tmp_path, "summary: Mine\nextends: train\nenv: {A: b}\n")
    assert (profile.name, profile.summary, profile.evidence) == ("mine", "Mine", None)
    assert profile.places["shm"] == "train.yaml:3"
    assert profile.places["allocator"] == "base.yaml:2"
    assert profile.places["env"] == "mine.yaml:3"


def test_env_is_joined_and_every_other_key_replaced(tmp_path):
    load(tmp_path, f"{MINIMAL}env: {{A: one, B: two}}\nincompatible: [cuda-ipc]\n", "parent")
    child = load(tmp_path, "summary: Child\nextends: parent\nenv: {B: three}\nincompatible: []\n", "child")
    assert (dict(child.env), child.incompatible) == ({"A": "one", "B": "three"}, ())


def test_a_mounted_profile_may_extend_the_shipped_one_of_its_own_name(tmp_path):
    profile = load(tmp_path, "summary: Ours\nextends: infer\ngpu: required\n", "infer")
    assert (profile.summary, profile.gpu, profile.conf) == ("Ours", "required", "backend:cudaMallocAsync")


def test_a_mounted_profile_may_extend_a_compiled_one(tmp_path):
    images = tmp_path / "compiled"
    images.mkdir()
    (images / "base.py").write_text(compile_profile(shipped("base")))
    path = tmp_path / "mine.yaml"
    path.write_text("summary: Mine\nextends: base\n")
    assert load_profile(str(path), str(images)).allocator == shipped("base").allocator


@pytest.mark.parametrize("name", SHIPPED)
def test_a_compiled_profile_is_the_profile(name):
    module = compiled(shipped(name))
    assert profile_from_values(module["PROFILE"]) == shipped(name)
    assert module["CONF"] == shipped(name).conf


def test_compiling_twice_gives_the_same_bytes(tmp_path):
    assert compile_profile(shipped("shared")) == compile_profile(shipped("shared"))


def test_no_value_of_a_profile_can_become_code(tmp_path):
    hostile = "x'}\\nimport os\\n\" \\\\"
    profile = load(
        tmp_path, f"summary: x\nallocator: {{backend: native}}\nenv: {{A: \"{hostile[:3]}\", B: '#'}}\n"
    )
    assert profile_from_values(compiled(profile)["PROFILE"]) == profile


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "alocator: {backend: native}\n",
            "mine.yaml:1: 'alocator' is not a key of a profile; did you mean allocator?",
        ),
        (f"{MINIMAL}gpus: 010\n", "mine.yaml:3: 010 is 8 in YAML 1.1; write 10"),
        (
            f"{MINIMAL}metrics_port: 09400\n",
            "mine.yaml:3: 09400 is the text '09400' in YAML 1.1, not a number; write 9400",
        ),
        (f"{MINIMAL}gpus: 08\n", "mine.yaml:3: 08 is the text '08'"),
        (f"{MINIMAL}timeout: 1:30\n", "mine.yaml:3: 1:30 is 90 in YAML 1.1; write 90"),
        (
            "summary: x\nallocator: {max_split_size_mb: 0512}\n",
            "mine.yaml:2: 0512 is 330 in YAML 1.1; write 512",
        ),
        (
            "summary: x\nallocator: {max_split_size_mb: 1_000}\n",
            "mine.yaml:2: 1_000 is 1000 in YAML 1.1; write 1000",
        ),
        ("allocator: {backend: native}\n", "mine.yaml: the key 'summary' is missing; add summary: one line"),
        (
            "summary: x\n",
            "mine.yaml: the key 'allocator' is missing; add allocator: {backend: cudaMallocAsync}",
        ),
        (
            "summary: x\nallocator: async\n",
            "mine.yaml:2: found 'async', expected a mapping such as {backend: cudaMallocAsync}",
        ),
        ("summary: x\nallocator: {}\n", "expected a mapping such as {backend: cudaMallocAsync}"),
        (
            "summary: x\nallocator: {backend: cudamallocasync}\n",
            "'cudamallocasync' is not one of cudaMallocAsync, native; did you mean cudaMallocAsync?",
        ),
        (
            "summary: x\nallocator: {max_split_size: 64}\n",
            "mine.yaml:2: 'max_split_size' is not an allocator option; did you mean max_split_size_mb?",
        ),
        (
            "summary: x\nallocator: {expandable_segments: 1}\n",
            "mine.yaml:2: found '1', expected true or false",
        ),
        (
            "summary: x\nallocator: {max_split_size_mb: 512MB}\n",
            "mine.yaml:2: found '512MB', expected a number",
        ),
        (
            'summary: x\nallocator: {roundup_power2_divisions: "[256:1"}\n',
            "mine.yaml:2: found '[256:1', expected a number, or",
        ),
        (f"{MINIMAL}summary: again\n", "mine.yaml:3: 'summary' is given twice (first at mine.yaml:1)"),
        ("summary: |\n  two\n  lines\nallocator: {backend: native}\n", "expected one line of text"),
        (f"{MINIMAL}fallback: async\n", "mine.yaml:3: 'async' is not one of expandable, native, none"),
        (f"{MINIMAL}gpu: need\n", "mine.yaml:3: 'need' is not one of required, wanted, none"),
        (f"{MINIMAL}gpu: no\n", "mine.yaml:3: no is false in YAML 1.1"),
        (
            f"{MINIMAL}devices: 0\n",
            "expected {count: 1} for a number of GPUs, or [0]",
        ),
        (f"{MINIMAL}devices: some\n", "mine.yaml:3: found 'some', expected all, {count: 1"),
        (f"{MINIMAL}env: {{HOME: /data}}\n", "mine.yaml:3: HOME does not belong in 'env'"),
        (f"{MINIMAL}env: {{PATH: /data}}\n", "mine.yaml:3: PATH does not belong in 'env'"),
        (f"{MINIMAL}devices: []\n", "expected all, {count: 1"),
        (f"{MINIMAL}devices: [0, 0]\n", "mine.yaml:3: found"),
        (f"{MINIMAL}devices: [GPU-a0, GPU-a00]\n", "expected each device once"),
        (
            f"{MINIMAL}devices: {{count: 0}}\n",
            "mine.yaml:3: found '0', expected a number of GPUs, at least 1",
        ),
        (f"{MINIMAL}devices: {{count: true}}\n", "mine.yaml:3: found 'true', expected a number of GPUs"),
        (
            f"{MINIMAL}devices: {{count: 1, chose: first}}\n",
            "'chose' is not a key of 'devices'; did you mean choose?",
        ),
        (
            f"{MINIMAL}devices: [cuda0]\n",
            "mine.yaml:3: found 'cuda0', expected an index such as 0, or a UUID",
        ),
        (f"{MINIMAL}memory: 1\n", "mine.yaml:3: found '1', expected null, a fraction between 0 and 1"),
        (f"{MINIMAL}memory: 20GB\n", "mine.yaml:3: found '20GB', expected null, a fraction"),
        (f"{MINIMAL}memory: 50%\n", "mine.yaml:3: found '50%', expected null, a fraction"),
        (f"{MINIMAL}shm: 1G\n", "mine.yaml:3: found '1G', expected null, or a size such as 1GiB"),
        (f"{MINIMAL}incompatible: cuda-ipc\n", "mine.yaml:3: found 'cuda-ipc', expected a list, [] for none"),
        (f"{MINIMAL}incompatible: [cuda_ipc]\n", "did you mean cuda-ipc?"),
        (f"{MINIMAL}env: {{A: 0.5}}\n", "mine.yaml:3: found '0.5', expected text in quotes, such as \"0.5\""),
        (
            f"{MINIMAL}env: {{A: true}}\n",
            "mine.yaml:3: found 'true', expected text in quotes, such as \"true\"",
        ),
        (f"{MINIMAL}env: {{A-B: x}}\n", "mine.yaml:3: 'A-B' is not a variable name"),
        (f"{MINIMAL}env: {{TORCH_POOL_STRICT: 1}}\n", "TORCH_POOL_STRICT is for the user of the image"),
        (
            f"{MINIMAL}env: {{PYTORCH_CUDA_ALLOC_CONF: x}}\n",
            "mine.yaml:3: PYTORCH_CUDA_ALLOC_CONF does not belong in 'env'; write it as 'allocator'",
        ),
        (f"{MINIMAL}extends: inferr\n", "mine.yaml:3: no profile 'inferr' to extend; did you mean infer?"),
        (f"{MINIMAL}extends: ../x\n", "mine.yaml:3: found '../x', expected the name of a profile"),
        (f"{MINIMAL}extends: mine\n", "mine.yaml:3: no profile 'mine' to extend"),
    ],
)
def test_what_is_not_exactly_a_profile_is_refused_with_its_line(tmp_path, text, message):
    found = refusal(tmp_path, text)
    assert message in found
    assert "\n" not in found


def test_a_circle_of_extends_is_refused_and_shown(tmp_path):
    (tmp_path / "b.yaml").write_text(f"{MINIMAL}extends: a\n")
    assert refusal(tmp_path, f"{MINIMAL}extends: b\n", "a") == (
        "b.yaml:3: 'extends' goes in a circle (a.yaml -> b.yaml -> a.yaml); remove one of them"
    )


def test_a_profile_that_extends_itself_in_the_directory_of_profiles_is_a_circle(tmp_path):
    path = tmp_path / "infer.yaml"
    path.write_text(f"{MINIMAL}extends: infer\n")
    with pytest.raises(Refusal, match="goes in a circle"):
        load_profile(str(path), str(tmp_path))


def test_a_file_name_that_cannot_be_a_profile_name_is_refused(tmp_path):
    assert "a profile file is named like my-profile.yaml" in refusal(tmp_path, MINIMAL, "My Profile")


class TestSchemaForEditors:
    schema = json.loads((PROFILES / "profile.schema.json").read_text())
    properties = schema["properties"]

    def test_it_has_the_keys_of_the_validator_and_no_others(self):
        assert set(self.properties) == set(profile_keys.READERS)
        assert self.schema["additionalProperties"] is False

    def test_it_has_the_allocator_options_of_the_validator(self):
        allocator = self.properties["allocator"]["properties"]
        assert set(allocator) == set(profile_keys.ALLOCATOR_KEYS)
        assert {key for key in allocator if allocator[key].get("type") == "boolean"} == set(
            profile_keys.SWITCHES
        )
        assert {key for key in allocator if allocator[key].get("type") == "number"} == set(
            profile_keys.NUMBERS
        )

    @pytest.mark.parametrize(
        ("enum", "words"),
        [
            (properties["allocator"]["properties"]["backend"]["enum"], profile_keys.BACKENDS),
            (properties["fallback"]["enum"], profile_keys.FALLBACKS),
            (properties["gpu"]["enum"], profile_keys.GPU_POLICIES),
            (properties["incompatible"]["items"]["enum"], profile_keys.INCOMPATIBLE),
            (properties["devices"]["oneOf"][1]["properties"]["choose"]["enum"], profile_keys.CHOICES),
        ],
        ids=["backend", "fallback", "gpu", "incompatible", "choose"],
    )
    def test_it_has_the_words_of_the_validator(self, enum, words):
        assert sorted(enum) == sorted(words)

    def test_every_key_is_described(self):
        assert all(self.properties[key].get("description") for key in self.properties)
