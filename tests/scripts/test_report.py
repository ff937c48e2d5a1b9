import io
from dataclasses import replace

from scripts.gate import judge
from scripts.layers import Layer
from scripts.report import format_layer, print_report
from tests.scripts.passing import BASE_LAYERS, IMAGE, evidence, facts


def report(found):
    out = io.StringIO()
    print_report(IMAGE, found, judge(found), out)
    return out.getvalue().splitlines()


def test_the_report_shows_every_check_and_every_layer():
    lines = report(evidence())
    assert lines[1] == "gate of infer"
    assert "  ok     torch             2.6.0+cu124" in lines
    assert "  ok     size of base      at most 5000 MB" in lines
    assert lines[-7:-1] == [
        "       MB  layer of infer, on disk (+: not of its base)",
        "   120.00  mmdebstrap",
        "  4000.00  RUN install",
        "     0.70 +COPY /files/ /",
        "  4120.70  on disk",
        "  4120.70  unpacked, 0.70 of it added",
    ]
    # A size that is not known is no zero.
    assert lines[-1].startswith("        -  compressed: ")


def test_a_failed_check_shows_what_was_expected_and_found():
    lines = report(evidence(facts=facts(uid=0)))
    assert "  FAILED user              expected 1000:0, found 0:0" in lines


def test_the_report_fits_80_columns():
    long = "RUN " + "x" * 200
    found = evidence(
        layers=(*BASE_LAYERS, Layer("sha256:c", 700_000, long)),
        facts=facts(failed_imports=tuple("abcdefghij" * 20)),
    )
    lines = report(found)
    assert max(map(len, lines)) <= 80
    assert sum(line.endswith("…") for line in lines) == 2


def test_a_layer_of_the_image_itself_is_marked():
    layer = replace(BASE_LAYERS[0], size_bytes=1_234_567_890)
    assert format_layer(layer, own=True) == "  1234.57 +mmdebstrap"
    assert format_layer(layer, own=False) == "  1234.57  mmdebstrap"
