import pytest

from scripts.bench_launch import Spread, format_report, judge_goals, spread
from scripts.launch_timing import BARE, PLAIN, SHELL


def raw(**changed):
    milliseconds = {SHELL: [1.0, 1.0], BARE: [10.0, 10.0], PLAIN: [11.0, 11.0]}
    machine = {"date": "2026-01-01", "cores": 2, "memory_gb": 8, "kernel": "6.1", "docker": "26.1"}
    usual = {
        "machine": machine,
        "load": 0.5,
        "milliseconds": milliseconds,
        "imports": ["baked"],
        "peak_kib": {PLAIN: 8192, BARE: 7168},
        "judge_milliseconds": [0.1, 0.2],
        "docker_stop_milliseconds": [100, 200],
    }
    return usual | changed


@pytest.mark.parametrize(
    ("values", "found"),
    [(range(1, 101), Spread(50.5, 95)), ([3.0], Spread(3.0, 3.0)), ([1, 2, 3], Spread(2, 3))],
)
def test_the_95th_percentile_is_a_value_that_was_measured(values, found):
    assert spread(values) == found


def test_a_goal_that_is_missed_is_reported_as_missed():
    slow = raw(milliseconds={SHELL: [1.0], BARE: [10.0], PLAIN: [30.0]})
    assert [row.found <= row.goal for row in judge_goals(raw())] == [True] * 5
    assert [row.found <= row.goal for row in judge_goals(slow)] == [False, False, True, True, True]
    assert "missed" in format_report(slow)


def test_the_page_shows_each_variant_against_both_rivals():
    assert f"| {PLAIN} | 11.0 | 11.0 | 1.10 | +10.0 |" in format_report(raw())
