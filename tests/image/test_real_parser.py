"""Our model of torch's two parsers against the torch in the image."""

import json
from pathlib import Path

import pytest
from hypothesis import Phase, given, seed, settings

from tests.entrypoint.conf_outcome import expected_outcome
from tests.entrypoint.test_conf import CASES, CONFS

pytestmark = pytest.mark.image

RECORDED = [case["conf"] for case in CASES]
STRANGE = 150


def strange_confs():
    """Confs that nobody has thought of, the same in every run; without what no environment can hold."""
    found = []

    @seed(2_06)
    @settings(max_examples=STRANGE, database=None, deadline=None, phases=[Phase.generate])
    @given(CONFS)
    def collect(conf):
        found.append(conf)

    collect()
    return sorted({conf for conf in found if "\0" not in conf})


def comparable(seen, foretold):
    """The names that the witness could see; undefined behaviour may end in any way."""
    if foretold["outcome"] == "undefined" or seen["outcome"] == "unseen":
        return ["load_backend"]
    return [name for name in seen if name in foretold]


@pytest.mark.parametrize("confs", [RECORDED, strange_confs()], ids=["recorded", "strange"])
def test_the_torch_of_the_image_does_what_we_foretell(run, folder, confs):
    assert len(confs) >= STRANGE // 2
    (folder / "confs.json").write_text(json.dumps(confs))
    volumes = {folder: "/w", Path(__file__).with_name("real_parser.py"): "/real_parser.py"}
    ended = run("infer", "sh", "-c", "python /real_parser.py < /w/confs.json", volumes=volumes)
    outcomes = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [outcome["conf"] for outcome in outcomes] == confs
    for seen in outcomes:
        foretold = expected_outcome(seen["conf"])
        names = comparable(seen, foretold)
        assert {name: seen[name] for name in names} == {name: foretold[name] for name in names}
