import collections
import pickle
import subprocess
import sys

import pytest
from torch_pool.record import NamedTuple


class Point(NamedTuple):
    x: int
    y: int = 0


Model = collections.namedtuple("Point", "x y", defaults=(0,))  # noqa: PYI024 - the oracle, without annotations


@pytest.mark.parametrize(
    "make",
    [
        lambda t: t(1),
        lambda t: t(1, 2),
        lambda t: t(y=2, x=1),
        lambda t: t(1)._replace(y=5),
        lambda t: t(x=1, y=2),
    ],
)
def test_a_record_behaves_as_the_standard_named_tuple(make):
    ours, model = make(Point), make(Model)
    assert (tuple(ours), repr(ours), ours._asdict(), ours.x, ours.y) == (
        tuple(model),
        repr(model),
        model._asdict(),
        model.x,
        model.y,
    )


@pytest.mark.parametrize("arguments", [((), {}), ((1, 2, 3), {}), ((1,), {"x": 2}), ((1,), {"z": 2})])
def test_wrong_fields_are_a_type_error(arguments):
    values, named = arguments
    with pytest.raises(TypeError, match="Point"):
        Point(*values, **named)


def test_a_record_cannot_be_changed():
    with pytest.raises(AttributeError):
        Point(1).x = 2


def test_a_record_can_be_pickled():
    assert pickle.loads(pickle.dumps(Point(1, 2))) == Point(1, 2)


def test_records_and_findings_import_nothing_but_themselves():
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); before = set(sys.modules); import torch_pool.finding;"
        "print(*sorted(set(sys.modules) - before))"
    )
    package = sys.modules["torch_pool.record"].__file__.rsplit("/", 2)[0]
    seen = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, package], check=True, capture_output=True, text=True
    )
    assert seen.stdout.split() == ["torch_pool", "torch_pool.finding", "torch_pool.record"]
