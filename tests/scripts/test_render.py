import re
import subprocess
import sys
from dataclasses import replace

import pytest
from torch_pool.profile import Profile
from torch_pool.refusal import Refusal

from scripts.images import ROOT, Image, load_images
from scripts.render import dockerfile_path, load_image_profile, render, write_if_changed

GOLDEN = ROOT / "tests" / "data" / "golden"
IMAGES = load_images()
IMAGE = Image("infer", "torch-pool infer", "For serving", "infer", 1)
PROFILE = Profile("infer", "", {"backend": "cudaMallocAsync"}, {}, {})
# Each could end its quotes, be expanded by BuildKit, or begin another instruction.
UNSAFE = ["x\nRUN id", 'x" \\\nRUN id', "$HOME", "${PATH}", "`id`", "back\\slash", "it's", "a\rb", "a\u2028b"]


@pytest.mark.parametrize("name", IMAGES)
def test_the_dockerfile_of_an_image_is_the_golden_one(name):
    text = render(IMAGES[name], load_image_profile(IMAGES[name]))
    assert text == (GOLDEN / f"{name}.Dockerfile").read_text("utf-8")


def test_every_golden_file_is_of_an_image():
    assert {path.name for path in GOLDEN.iterdir()} == {f"{name}.Dockerfile" for name in IMAGES}


@pytest.mark.parametrize("name", IMAGES)
def test_the_committed_dockerfile_has_not_drifted_from_the_template(name):
    image = IMAGES[name]
    assert dockerfile_path(image).read_bytes().decode() == render(image, load_image_profile(image))


@pytest.mark.parametrize("name", IMAGES)
def test_the_profile_and_the_packages_are_all_that_images_differ_in(name):
    changed = re.compile(r"LABEL|io\.torch-pool|image\.(title|description)|ALLOC_CONF|^# GENERATED")

    def common(text):
        text = re.sub(r"# Before the launch.*?packages\.sh.*?\n", "", text, flags=re.DOTALL)
        return [line for line in text.splitlines() if not changed.search(line) and "ref.name" not in line]

    texts = [(GOLDEN / f"{each}.Dockerfile").read_text("utf-8") for each in ("infer", name)]
    assert common(texts[0]) == common(texts[1])


@pytest.mark.parametrize(
    ("template", "place", "variable"),
    [
        ("FROM {{ base_image }}:{{ base_tag }}\n", 1, "'base_image' is undefined"),
        ("FROM base\n\nLABEL a=b \\\n  p={{ profle.name }}\n", 4, "'profle' is undefined"),
        ("FROM base\n{% if image.requirments %}\nRUN id\n{% endif %}\n", 2, "no attribute 'requirments'"),
        ("FROM base\nLABEL t={{ image.titel }}\n", 2, "no attribute 'titel'"),
    ],
)
def test_an_undefined_variable_is_named_with_its_line(tmp_path, template, place, variable):
    path = tmp_path / "Dockerfile.j2"
    path.write_text(template)
    with pytest.raises(Refusal) as refusal:
        render(IMAGE, PROFILE, path)
    assert str(refusal.value).startswith(f"Dockerfile.j2:{place}: ")
    assert variable in str(refusal.value)
    assert str(refusal.value).endswith("(image infer)")


@pytest.mark.parametrize("template", ["FROM base\n{% if %}\n", "FROM base\n{{ image.title | no }}\n"])
def test_a_wrong_template_is_named_with_its_line(tmp_path, template):
    path = tmp_path / "Dockerfile.j2"
    path.write_text(template)
    with pytest.raises(Refusal, match=r"^Dockerfile\.j2:2: "):
        render(IMAGE, PROFILE, path)


def test_a_missing_template_is_named(tmp_path):
    with pytest.raises(Refusal, match=r"gone\.j2 cannot be read"):
        render(IMAGE, PROFILE, tmp_path / "gone.j2")


@pytest.mark.parametrize("value", UNSAFE)
@pytest.mark.parametrize("place", ["title", "description", "conf"])
def test_no_value_becomes_another_instruction(place, value):
    image = IMAGE if place == "conf" else replace(IMAGE, **{place: value})
    profile = PROFILE._replace(allocator={"backend": value}) if place == "conf" else PROFILE
    with pytest.raises(Refusal, match=r"^Dockerfile\.j2:\d+: .*would not take as text \(image infer\)$"):
        render(image, profile)


@pytest.mark.parametrize("value", ["Für Anfragen, 日本語", "a # b", "{{ 7*7 }}", "{% if %}", "a  b", "ENV=1"])
def test_a_harmless_value_arrives_as_it_is(value):
    assert f'image.title="{value}"' in render(replace(IMAGE, title=value), PROFILE)


@pytest.mark.parametrize("value", [None, True, ["a"]])
def test_a_value_that_is_no_text_is_refused(value):
    with pytest.raises(Refusal, match="is no text"):
        render(replace(IMAGE, title=value), PROFILE)


@pytest.mark.parametrize("text", [(GOLDEN / f"{name}.Dockerfile").read_text("utf-8") for name in IMAGES])
def test_a_parser_directive_stands_on_line_1_or_nowhere(text):
    # BuildKit reads `# name=value` as a directive only above the first other comment or line.
    directives = [
        n for n, line in enumerate(text.splitlines(), 1) if re.match(r"#\s*(syntax|escape|check)\s*=", line)
    ]
    assert directives in ([], [1])


def test_the_same_text_is_not_written_again(tmp_path):
    path = tmp_path / "Dockerfile"
    assert write_if_changed(path, "FROM base\n")
    before = unread(path)
    assert not write_if_changed(path, "FROM base\n")
    assert unread(path) == before
    assert path.stat().st_mode & 0o777 == 0o644


def unread(path):
    """What a write would change, and a read does not."""
    found = path.stat()
    return found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_mode


@pytest.mark.parametrize("old", [b"FROM base\r\n", b"FROM old\n", b"\xff"])
def test_another_text_replaces_the_file_byte_for_byte(tmp_path, old):
    path = tmp_path / "Dockerfile"
    path.write_bytes(old)
    assert write_if_changed(path, "FROM base\n")
    assert path.read_bytes() == b"FROM base\n"


def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "Dockerfile"
    path.write_text("FROM old\n")
    before = unread(path)
    # A limit on the size of files stands for a full disk.
    program = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (9, 9));"
    program += "from pathlib import Path; from scripts.render import write_if_changed;"
    program += "write_if_changed(Path('Dockerfile'), 'FROM another base\\n')"
    environ = {"PYTHONPATH": f"{ROOT}:{ROOT}/entrypoint", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environ, capture_output=True, check=False
    )
    assert b"File too large" in done.stderr
    assert (unread(path), path.read_text(), list(tmp_path.iterdir())) == (before, "FROM old\n", [path])


def test_make_render_fails_on_an_undefined_variable_and_touches_nothing(checkout):
    template = checkout.root / "Dockerfile.j2"
    template.write_text(template.read_text().replace("profile.name", "profle.name"))
    before = contents(checkout.root / "images")
    done = checkout.make("render")
    assert done.returncode == 2
    message = "torch-pool: Dockerfile.j2:1: 'profle' is undefined (image infer)"
    assert message in done.stderr.splitlines()
    assert contents(checkout.root / "images") == before


def test_make_render_writes_what_changed_and_says_so(checkout):
    path = checkout.root / "images" / "nlp" / "image.yaml"
    path.write_text(path.read_text().replace("title: torch-pool nlp", "title: text"))
    before = contents(checkout.root / "images")
    done = checkout.make("render")
    after = contents(checkout.root / "images")
    assert (done.returncode, done.stdout) == (0, "")
    assert "images/nlp/Dockerfile: written" in done.stderr
    assert "images/infer/Dockerfile: unchanged" in done.stderr
    assert {name for name in after if after[name] != before.get(name)} == {"nlp/Dockerfile"}


@pytest.mark.parametrize(
    ("path", "old", "new", "message"),
    [
        (
            "images/infer/image.yaml",
            "title: torch-pool infer",
            'title: "x\\nRUN id"',
            "would not take as text",
        ),
        ("images/infer/image.yaml", "title: torch-pool infer", "title: $(id)", "would not take as text"),
        ("images/infer/image.yaml", "title: torch-pool infer", "titel: x", "titel no known key"),
        ("entrypoint/profiles/base.yaml", "cudaMallocAsync", '"x\\nRUN id"', "base.yaml:2: "),
        ("entrypoint/profiles/base.yaml", "cudaMallocAsync", '"`id`"', "base.yaml:2: "),
    ],
)
def test_a_file_with_a_hostile_value_renders_nothing(checkout, path, old, new, message):
    file = checkout.root / path
    file.write_text(file.read_text().replace(old, new))
    before = contents(checkout.root / "images")
    done = checkout.make("render")
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("torch-pool: ")]
    assert (done.returncode, message in line) == (2, True)
    assert contents(checkout.root / "images") == before


def contents(folder):
    """Every file below a folder, with its bytes and the time of its last change."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}
