"""What every image promises to `docker run`, whatever its packages."""

import json

import pytest

from scripts.images import load_images
from scripts.render import load_image_profile

pytestmark = pytest.mark.image

USERS = ("1000:0", "955", "12345:0", "1000540000:0", "4321:4321", "0:0")
WRITE_EVERYWHERE = 'cd /workspace && touch a "$HOME/b" "$HOME/.cache/c" /tmp/d && id -u'


def test_a_command_prints_what_it_prints_and_nothing_else(image, run):
    ended = run(image, "echo", "Hello  'World' $X")
    assert (ended.status, ended.stdout) == (0, "Hello  'World' $X\n")


def test_the_torch_of_the_image_loads_the_backend_of_its_profile(image, run):
    program = (
        "import os, torch; print(torch.cuda.get_allocator_backend(), os.environ['PYTORCH_CUDA_ALLOC_CONF'])"
    )
    profile = load_image_profile(load_images()[image])
    assert run(image, "python", "-c", program).stdout == f"{profile.allocator['backend']} {profile.conf}\n"


@pytest.mark.parametrize("user", USERS)
def test_any_user_can_write_home_caches_and_workspace(user, run):
    ended = run("infer", "sh", "-c", WRITE_EVERYWHERE, user=user)
    assert (ended.status, ended.stdout) == (0, user.partition(":")[0] + "\n")


@pytest.mark.parametrize("user", USERS)
def test_any_user_can_write_also_where_the_entrypoint_is_bypassed(user, run):
    ended = run("infer", "-c", WRITE_EVERYWHERE, user=user, entrypoint="sh")
    assert (ended.status, ended.stdout) == (0, user.partition(":")[0] + "\n")


def test_a_mounted_folder_of_another_uid_works_with_that_uid(workspace, run):
    script = "echo 1 > made && stat -c %u made"
    ended = run("infer", "sh", "-c", script, user="4321:0", volumes={workspace: "/workspace"})
    assert ended.stdout == "4321\n"
    assert (workspace / "made").read_text() == "1\n"


def test_the_user_is_numeric_so_that_kubernetes_can_check_run_as_non_root(image, client):
    assert client.images.get(f"torch-pool:{image}").attrs["Config"]["User"] == "1000:0"


def test_python_and_pip_are_on_the_path(image, run):
    ended = run(image, "sh", "-c", "python --version && pip --version && command -v torch-pool")
    assert ended.status == 0
    assert "Python 3.11" in ended.stdout


def test_the_driver_floor_is_that_of_cuda_12_and_no_gpu_is_shown_unasked(image, client):
    """C19: more than CUDA 12.0 would shut out drivers since 525; CUDA_VERSION alone would demand its own."""
    lines = client.images.get(f"torch-pool:{image}").attrs["Config"]["Env"]
    environment = dict(line.split("=", 1) for line in lines)
    found = {name: value for name, value in environment.items() if name.startswith(("NVIDIA", "CUDA"))}
    assert found == {
        "NVIDIA_VISIBLE_DEVICES": "void",
        "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
        "NVIDIA_REQUIRE_CUDA": "cuda>=12.0",
    }


def test_labels_say_what_the_image_holds(image, client):
    labels = client.images.get(f"torch-pool:{image}").labels
    profile = load_image_profile(load_images()[image])
    ours = {
        name.removeprefix("io.torch-pool."): value for name, value in labels.items() if "torch-pool" in name
    }
    ours.pop("base.inputs", None)
    assert ours == {
        "profile": image,
        "conf": profile.conf,
        "torch": "2.6.0+cu124",
        "cuda": "12.4",
        "python": ours["python"],
    }
    assert labels["org.opencontainers.image.title"] == f"torch-pool {image}"
    assert len(labels["org.opencontainers.image.revision"]) == 40


def test_a_base_that_is_not_published_has_no_name_in_the_labels(client):
    assert not [name for name in client.images.get("torch-pool:infer").labels if ".image.base." in name]


def test_the_content_tag_names_the_same_image(image, client):
    rolling = client.images.get(f"torch-pool:{image}")
    assert f"torch-pool:{image}-torch2.6.0-cu124-py311-debian12" in rolling.tags


def test_images_share_all_layers_but_their_own(client):
    """infer, train and shared differ in one layer: the compiled profile (and the folder below it)."""
    chains = {
        name: client.images.get(f"torch-pool:{name}").attrs["RootFS"]["Layers"]
        for name in ("infer", "train", "shared")
    }
    different = {name: set(chain) - set(chains["infer"]) for name, chain in chains.items() if name != "infer"}
    assert {name: len(layers) for name, layers in different.items()} == {"train": 1, "shared": 1}


def test_images_with_packages_carry_the_launch_as_the_same_layer(client):
    infer = client.images.get("torch-pool:infer").attrs["RootFS"]["Layers"]
    nlp = client.images.get("torch-pool:nlp").attrs["RootFS"]["Layers"]
    base = client.images.get("torch-pool-base:wheels").attrs["RootFS"]["Layers"]
    launch = infer[len(base)]
    assert launch in nlp


def test_neither_layers_nor_history_nor_environment_tell_of_the_machine(image, client):
    found = client.images.get(f"torch-pool:{image}")
    text = json.dumps([found.attrs["Config"], found.history()]).lower()
    assert not [word for word in ("_proxy", "begin certificate", "ca_bundle", "index-url") if word in text]


def test_no_certificate_proxy_or_resolver_of_the_machine_is_in_the_files(run):
    """Debian's own bundle is there, made from its package; nothing of ours lies beside it."""
    script = "cat /etc/resolv.conf.orig /etc/apt/apt.conf.d/*; ls /run/secrets /run/bases /run/uv; env"
    ended = run("infer", "-c", script, entrypoint="sh")
    assert "Proxy" not in ended.stdout
    assert "No such file" in ended.stderr
    assert "CERT" not in ended.stdout
