from scripts.images import load_images
from scripts.listing import main
from scripts.settings import resolve_settings


def test_the_images_are_listed_where_there_is_no_engine(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(resolve_settings({}, "")) == 0
    out, err = capsys.readouterr()
    rows = [line.split(maxsplit=3) for line in out.splitlines()]
    assert err == ""
    assert [row[0] for row in rows] == list(load_images())
    assert {tuple(row[1:3]) for row in rows} == {("no", "engine")}
    assert [row[3] for row in rows] == [image.description for image in load_images().values()]


def test_listing_starts_no_engine(checkout, program):
    docker = program("docker", "sys.exit('Cannot connect to the Docker daemon')")
    done = checkout.make("list")
    assert (done.returncode, done.stderr) == (0, "")
    assert {call.arguments[0] for call in docker.calls} == {"info"}
