"""The front against its definition, and the knee against geometry written down another way."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutlayer.errors import DataError
from cutlayer_sweep.pareto import knee, pareto_front

COARSE = st.integers(0, 6).map(lambda number: number / 4)  # many ties
FINE = st.floats(-1e6, 1e6).map(lambda number: round(number, 3))
POINTS = st.one_of(
    st.lists(st.tuples(COARSE, COARSE), max_size=12),
    st.lists(st.tuples(FINE, FINE), max_size=12),
)


def beaten(point, others):
    return any(g >= point[0] and c <= point[1] and (g, c) != point for g, c in others)


def split(points):
    return [gain for gain, _ in points], [cost for _, cost in points]


@given(POINTS)
def test_the_front_is_what_the_definition_says(points):
    found = pareto_front(*split(points)).tolist()
    assert sorted(found) == [index for index, point in enumerate(points) if not beaten(point, points)]
    costs = [points[index][1] for index in found]
    assert costs == sorted(costs)


@given(POINTS)
def test_equal_points_stand_in_the_order_they_came(points):
    found = pareto_front(*split(points)).tolist()
    for first, second in itertools.pairwise(found):
        assert points[first] != points[second] or first < second


def distance_from_line(point, start, end):
    """Signed distance (positive towards more gain) from the line through start and end, by the cross product."""
    along = (end[0] - start[0], end[1] - start[1])
    to = (point[0] - start[0], point[1] - start[1])
    return (along[1] * to[0] - along[0] * to[1]) / math.hypot(*along)


@given(POINTS.filter(bool))
def test_the_knee_is_the_front_point_farthest_above_the_line_through_the_ends(points):
    front = sorted({point for point in points if not beaten(point, points)}, key=lambda point: point[1])
    found = knee(*split(points))
    if len(front) == 1:
        assert points[found] == front[0]
        return
    (low_gain, low_cost), (high_gain, high_cost) = front[0], front[-1]
    scaled = {
        ((gain - low_gain) / (high_gain - low_gain), (cost - low_cost) / (high_cost - low_cost)): (gain, cost)
        for gain, cost in front
    }
    far = {point: distance_from_line(point, (0.0, 0.0), (1.0, 1.0)) for point in scaled}
    most = max(far.values())
    if found is None:
        assert most < 1e-9
    else:
        assert most > 1e-13
        assert points[found] in front
        at = next(point for point, whole in scaled.items() if whole == points[found])
        assert far[at] == pytest.approx(most, abs=1e-9)


@given(st.lists(st.tuples(COARSE, COARSE), min_size=1, max_size=10), st.integers(1, 5), st.integers(-3, 3))
def test_scaling_and_shifting_an_axis_moves_no_knee(points, factor, shift):
    gains, costs = split(points)
    moved = [gain * 2.0**factor + shift for gain in gains]
    assert knee(moved, costs) == knee(gains, costs)
    assert knee(gains, [cost * 2.0**factor + shift for cost in costs]) == knee(gains, costs)


@given(st.lists(st.tuples(COARSE, COARSE, COARSE), max_size=12))
def test_a_front_of_two_costs_is_what_the_definition_says(points):
    axes = [[point[axis] for point in points] for axis in range(3)]
    found = pareto_front(*axes).tolist()
    better = [(gain, -cost, -other) for gain, cost, other in points]
    assert sorted(found) == [
        at
        for at, own in enumerate(better)
        if not any(other != own and all(map(float.__ge__, other, own)) for other in better)
    ]
    assert [points[at][1:] for at in found] == sorted(points[at][1:] for at in found)
    constant = [0.5] * len(points)
    assert knee(axes[0], axes[1], constant) == knee(*axes[:2]), "an axis that does not vary changes nothing"


def test_the_knee_of_two_costs_is_good_on_all_axes():
    gain, leak, rebuilt = [1.0, 0.9, 0.0, 0.5], [1.0, 0.2, 0.0, 0.1], [1.0, 0.2, 0.5, 0.0]
    assert knee(gain, leak, rebuilt) == 1
    assert knee(gain[:1] + gain[2:], leak[:1] + leak[2:], rebuilt[:1] + rebuilt[2:]) is None, "an end is as good"


def test_points_on_the_axes_of_a_known_front():
    gain, cost = [0.0, 0.6, 0.9, 1.0, 0.5], [0.0, 0.1, 0.5, 1.0, 0.6]
    assert pareto_front(gain, cost).tolist() == [0, 1, 2, 3]
    assert knee(gain, cost) == 1  # 0.5 above the line, against 0.4


@pytest.mark.parametrize(
    ("gain", "cost", "expected"),
    [
        ([], [], None),
        ([0.7], [0.6], 0),
        ([0.7, 0.7], [0.6, 0.6], 0),
        ([0.7, 0.9], [0.6, 0.8], None),
        ([0.9, 0.7], [0.5, 0.8], 0),
        ([0.0, 0.1, 1.0], [0.0, 0.5, 1.0], None),
        ([0.0, 0.5, 1.0], [0.0, 0.5, 1.0], None),
        ([0.0, 0.75, 0.875, 1.0], [0.0, 0.25, 0.375, 1.0], 1),
    ],
    ids=["none", "one", "twins", "two", "one beats the other", "sagging", "straight", "a tie goes to less cost"],
)
def test_small_fronts_are_defined(gain, cost, expected):
    assert knee(gain, cost) == expected


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_none_are_refused(bad):
    with pytest.raises(DataError, match="finite gains and costs"):
        pareto_front([0.5, bad], [0.5, 0.6])
    with pytest.raises(DataError, match="finite gains and costs"):
        knee([0.5, 0.6], [bad, 0.6])


@pytest.mark.parametrize("shapes", [((3,), (2,)), ((2, 2), (2, 2))])
def test_other_shapes_are_refused(shapes):
    with pytest.raises(DataError, match="one gain and one cost per point"):
        pareto_front(np.zeros(shapes[0]), np.zeros(shapes[1]))
