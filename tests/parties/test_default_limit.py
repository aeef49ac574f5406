"""By default grades that carry nearly all that noise lets through of one attribute are refused, and honest ones not."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from cutlayer.data.carried import Carried, CarriedAttribute
from cutlayer.errors import ConfigError
from cutlayer.parties.carried import check_limits


def check(share: float, epsilon: float | None, grades: int, limits: Mapping[str, float] | None = None) -> None:
    attribute = CarriedAttribute(column="health", attribute="health = ill", rows=0.3, bits=0.1, share=share)
    found = Carried(grades=grades, epsilon=epsilon, bits=1.0, attributes=(attribute,))
    check_limits(found, limits or {}, "clinic")


@pytest.mark.parametrize(
    ("epsilon", "grades", "limit"), [(8.0, 16, 0.92), (4.0, 4, 0.74), (2.0, 2, 0.45), (None, 16, 0.95)]
)
def test_the_default_follows_the_noise(epsilon: float | None, grades: int, limit: float) -> None:
    check(limit - 0.01, epsilon, grades)
    with pytest.raises(ConfigError, match=rf"carry {limit:g} of an attribute of health .*; nothing was sent"):
        check(limit + 0.01, epsilon, grades)


def test_a_limit_of_the_column_or_of_others_is_in_its_place() -> None:
    check(0.99, 8.0, 16, {"other": 1.0})
    check(0.99, 8.0, 16, {"health": 1.0})
    with pytest.raises(ConfigError, match=r"carry 0\.2 of"):
        check(0.3, 8.0, 16, {"other": 0.2})
    with pytest.raises(ConfigError, match=r"carry 0\.92 of"):
        check(0.99, 8.0, 16, {"age": 0.2})
