"""What is varied: how it is written, and which points the trials try."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutlayer.errors import ConfigError
from cutlayer_sweep.space import EVEN_TRIALS, Choices, Range, Space, parse_varied, space_of


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a.b=1,2", Choices("a.b", (1, 2))),
        ("a=1e-4, 1e-3", Choices("a", (1e-4, 1e-3))),
        ("a=adam,sgd", Choices("a", ("adam", "sgd"))),
        ("a=true,false", Choices("a", (True, False))),
        ("a=-3", Choices("a", (-3,))),
        ("a=1..8", Range("a", 1, 8)),
        ("a=-0.5..0.5", Range("a", -0.5, 0.5)),
        ("a=0.1..4:log", Range("a", 0.1, 4, log=True)),
        ("a=.1..1.", Range("a", 0.1, 1.0)),
    ],
)
def test_values_are_read_as_they_are_typed(text, expected):
    found = parse_varied(text)
    assert found == expected
    kinds = [[type(edge) for edge in item.edges] for item in (found, expected)]
    assert kinds[0] == kinds[1]
    assert parse_varied(str(found)) == found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a", "expected --vary PATH=VALUE"),
        ("=1,2", "expected --vary PATH=VALUE"),
        ("a=", "expected --vary PATH=VALUE"),
        ("a..b=1", "expected --vary PATH=VALUE"),
        ("a=1,,2", "a value is empty"),
        ("a=1,2,1.0", "every value of --vary a once, got 1.0 twice|every value of --vary a once, got 1 twice"),
        ("a=1,inf", "finite numbers"),
        ("a=2..1", "from a smaller to a larger number, got 2..1"),
        ("a=1..1", "from a smaller to a larger number"),
        ("a=0..1:log", "above 0 throughout for :log"),
        ("a=0.1..1:lin", "with two numbers"),
        ("a=1..x", "with two numbers"),
        ("a=1..nan", "with two numbers"),
        ("a=true..2", "with two numbers"),
        ("a=1..2..3", "with two numbers"),
    ],
)
def test_anything_else_is_refused(text, message):
    with pytest.raises(ConfigError, match=message):
        parse_varied(text)


def test_a_place_stands_once_and_a_grid_has_bounds():
    with pytest.raises(ConfigError, match="in one --vary, got a in several"):
        space_of([parse_varied("a=1,2"), parse_varied("a=3..4")], 0)
    many = [Choices(name, tuple(range(30))) for name in "abc"]
    with pytest.raises(ConfigError, match="a grid of at most 10,000 points, got 27,000"):
        space_of(many, 0)
    with pytest.raises(ConfigError, match="once or more"):
        space_of([], 0)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=3), st.integers(0, 2**63 - 1))
def test_a_grid_holds_every_point_once(sizes, seed):
    space = space_of([Choices(f"p{index}", tuple(range(size))) for index, size in enumerate(sizes)], seed)
    points = {tuple(space.fixed(slot).values()) for slot in range(space.points)}
    assert len(points) == space.points == math.prod(sizes)


def test_the_order_on_the_command_line_changes_no_point():
    one, other = parse_varied("a=1,2,3"), parse_varied("b=0.1..1")
    first, second = space_of([one, other], 7), space_of([other, one], 7)
    assert [first.fixed(slot) for slot in range(9)] == [second.fixed(slot) for slot in range(9)]
    grids = [space_of(pair, 7) for pair in ([one, Choices("b", (5, 6))], [Choices("b", (5, 6)), one])]
    assert [grids[0].fixed(slot) for slot in range(6)] == [grids[1].fixed(slot) for slot in range(6)]


@pytest.mark.parametrize("seed", range(5))
def test_a_search_begins_evenly_spread(seed):
    """Each half of a logarithmic range gets some four to six of ten; independent draws often give it fewer."""
    space = space_of([Range("a", 0.01, 100.0, log=True), Choices("b", (1, 2))], seed)
    points = [space.fixed(slot) for slot in range(EVEN_TRIALS)]
    assert 4 <= sum(point["a"] < 1 for point in points) <= 6
    assert 4 <= sum(point["b"] == 1 for point in points) <= 6
    gaps = np.diff(np.sort([math.log10(point["a"]) for point in points]))
    assert gaps.max() < 4 * 0.3
    assert space.fixed(EVEN_TRIALS) == {}


@given(
    st.floats(1e-6, 1e6),
    st.floats(1.001, 1e6),
    st.booleans(),
    st.floats(0, 1),
)
def test_points_stay_between_the_ends(low, factor, log, share):
    one = Range("a", low, low * factor, log=log)
    assert one.low <= one.at(share) <= one.high
    if log:
        expected = low * factor**share
        assert one.at(share) == pytest.approx(expected, rel=1e-9)


def test_whole_ranges_give_whole_numbers():
    found = [Range("a", 1, 4, whole=True).at(share) for share in (0, 0.3, 0.5, 1)]
    assert found == [1, 2, 2, 4]
    assert all(type(value) is int for value in found)


def test_spaces_are_equal_by_what_they_hold():
    assert Space((Range("a", 1, 2),), 3) == Space((Range("a", 1, 2),), 3)
