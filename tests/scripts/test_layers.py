import pytest

from scripts.layers import Layer, match_layers, own_layers, total_bytes


def history(*entries):
    """As the engine's API lists it, the newest first."""
    return [{"CreatedBy": created_by, "Size": size} for created_by, size in entries]


# One of our images, as `docker history` shows it: BuildKit on a root file system of ours.
BUILDKIT = history(
    ("CMD []", 0),
    ('ENTRYPOINT ["tini" "-s" "--"]', 0),
    ("USER 1000:0", 0),
    ("WORKDIR /workspace", 0),
    ("LABEL org.opencontainers.image.title=torch-pool infer", 0),
    ("ENV HOME=/home/torch-pool", 0),
    ("ARG NVIDIA_REQUIRE_CUDA=cuda>=12.0", 0),
    ("COPY /files/ / # buildkit", 16_384),
    ("COPY /files/ / # buildkit", 692_224),
    ("RUN |3 PYTHON=/usr/bin/python3.11 CUDA=12.4 /bin/bash -euo pipefail -c bash common.sh", 4_096_000),
    ("USER 0", 0),
    ("RUN /bin/bash -euo pipefail -c bash /run/bases/wheels/install.sh # buildkit", 4_500_000_000),
    ("COPY bases/wheels/dpkg.conf /etc/dpkg/dpkg.cfg.d/torch-pool # buildkit", 4_096),
    ("ENV LANG=C.UTF-8", 0),
    ("mmdebstrap bookworm", 110_000_000),
)
# Debian's image under two instructions of the builder before BuildKit.
CLASSIC = history(
    ('/bin/sh -c #(nop)  CMD ["bash"]', 0),
    ("/bin/sh -c #(nop) WORKDIR /workspace", 0),
    ("/bin/sh -c apt-get update &&     apt-get install tini", 30_000_000),
    ("/bin/sh -c #(nop) ADD file:0123 in / ", 117_000_000),
)


def ids(count):
    return [f"sha256:{number}" for number in range(count)]


def test_each_layer_of_buildkit_is_matched_with_its_instruction():
    layers = match_layers(ids(7), BUILDKIT)
    assert [(layer.diff_id[7:], layer.size_bytes) for layer in layers] == [
        ("0", 110_000_000),
        ("1", 4_096),
        ("2", 4_500_000_000),
        ("3", 4_096_000),
        ("4", 692_224),
        ("5", 16_384),
        ("6", 0),
    ]
    assert [layer.created_by for layer in layers][2:] == [
        "RUN /bin/bash -euo pipefail -c bash /run/bases/wheels/install.sh",
        "RUN |3 PYTHON=/usr/bin/python3.11 CUDA=12.4 /bin/bash -euo pipefail -c bash common.sh",
        "COPY /files/ /",
        "COPY /files/ /",
        "WORKDIR /workspace",
    ]


def test_an_instruction_that_changed_nothing_still_has_its_layer():
    entries = history(("RUN /bin/sh -c true # buildkit", 0), ("COPY a / # buildkit", 4096), ("debian.sh", 5))
    layers = match_layers(ids(3), entries)
    assert [(layer.size_bytes, layer.created_by) for layer in layers] == [
        (5, "debian.sh"),
        (4096, "COPY a /"),
        (0, "RUN /bin/sh -c true"),
    ]


def test_the_classic_builder_makes_no_layer_for_a_folder_that_is_there():
    layers = match_layers(ids(2), CLASSIC)
    assert layers == (
        Layer("sha256:0", 117_000_000, "ADD file:0123 in /"),
        Layer("sha256:1", 30_000_000, "RUN apt-get update && apt-get install tini"),
    )


def test_an_image_without_a_history_has_its_one_layer():
    assert match_layers(ids(1), history(("", 5))) == (Layer("sha256:0", 5, ""),)


def test_what_an_image_adds_is_what_its_base_has_not():
    base, image = match_layers(ids(4), BUILDKIT[-6:]), match_layers(ids(7), BUILDKIT)
    assert [layer.diff_id[7:] for layer in own_layers(image, base)] == ["4", "5", "6"]
    assert total_bytes(own_layers(image, base)) == 692_224 + 16_384
    assert own_layers(base, base) == ()


@pytest.mark.parametrize(
    ("created_by", "shown"),
    [
        ("RUN /bin/sh -c apt-get   update # buildkit", "RUN /bin/sh -c apt-get update"),
        ("/bin/sh -c apt-get update", "RUN apt-get update"),
        ("/bin/sh -c #(nop) COPY file:1 in /x", "COPY file:1 in /x"),
        ("COPY <<EOF /x\nline\nEOF # buildkit", "COPY <<EOF /x line EOF"),
    ],
)
def test_an_instruction_is_one_line_as_its_author_wrote_it(created_by, shown):
    (layer,) = match_layers(ids(1), history((created_by, 1)))
    assert layer.created_by == shown
