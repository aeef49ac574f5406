"""By default grades that carry nearly all that noise lets through of one attribute are refused, and honest ones not."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

from cutlayer.accounting.run_store import LEDGER_FILE
from cutlayer.data.carried import Carried, CarriedAttribute
from cutlayer.errors import ConfigError
from cutlayer.models.bottom_fits import TrainingColumns, check_columns
from cutlayer.parties.carried_limits import check_limits
from cutlayer.problem.inputs import Inputs
from tests.parties.test_carried_together import found_in
from tests.parties.test_grades import TELCO, graded, tables
from tests.training.test_all_runs import World


def check(share: float, epsilon: float | None, grades: int, limits: Mapping[str, float] | None = None) -> None:
    attribute = CarriedAttribute(column="health", attribute="health = ill", rows=0.3, bits=0.1, share=share)
    found = Carried(grades=grades, epsilon=epsilon, bits=1.0, attributes=(attribute,))
    check_limits(found, limits or {}, "clinic")


@pytest.mark.parametrize(
    ("epsilon", "grades", "limit"), [(8.0, 16, 0.92), (4.0, 4, 0.74), (3.0, 3, 0.62), (None, 16, 0.95)]
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


@pytest.mark.parametrize("kind", ["number", "category"])
def test_a_partner_with_one_column_is_refused_before_labels_are_sent(tmp_path: Path, kind: str) -> None:
    """The default limit would refuse it where no lower epsilon may be taken: labels would have cost their epsilon."""
    world, given = World(tmp_path), {**tables(rows=600)}
    number = given[TELCO]["telco_0"]
    column = number if kind == "number" else pa.array(np.array(["a", "b", "c"])[np.digitize(number, [-0.5, 0.5])])
    given[TELCO] = pa.table({"id": given[TELCO]["id"], "usage": column})
    with pytest.raises(
        ConfigError, match=r"parties.telco.fit: expected more than one column.*write limits: \{other: 1"
    ):
        world.run(graded({"least_epsilon": None}, eps=1.0), given)
    assert not (world.secrets / LEDGER_FILE).exists()
    share = found_in(world.run(graded({"limits": {"other": 1}}, eps=1.0), given)).attributes[0].share
    assert share > (0.92 if kind == "category" else 0.6)


def test_a_partner_with_one_column_sends_fewer_grades_at_a_lower_epsilon(tmp_path: Path) -> None:
    """At the last step no grades exceed the default limit: what would be sent within it is not refused."""
    world, given = World(tmp_path), {**tables(rows=600)}
    column = np.digitize(given[TELCO]["telco_0"], [-0.5, 0.5])
    given[TELCO] = pa.table({"id": given[TELCO]["id"], "usage": np.array(["a", "b", "c"])[column]})
    found = found_in(world.run(graded({}, eps=1.0), given))
    assert found.epsilon in (2.0, 3.0, 4.0, 6.0)
    assert found.attributes[0].share <= 0.48


@pytest.mark.parametrize(
    ("epsilon", "least", "is_refused"), [(8.0, 2.0, False), (8.0, 3.0, True), (8.0, None, True), (2.0, None, False)]
)
def test_a_single_column_is_refused_where_no_step_has_all_that_its_noise_lets_through(
    epsilon: float, least: float | None, is_refused: bool
) -> None:
    columns = TrainingColumns(
        Inputs((3,), 0), torch.arange(4), lambda _: (torch.zeros(0), torch.zeros(0)), epsilon=epsilon
    )
    with pytest.raises(ConfigError, match="more than one column") if is_refused else nullcontext():
        check_columns({"kind": "grade", "least_epsilon": least}, columns, "fit")
