"""The checks on attacks that know values of a regression must catch one that guesses, cheats or loses a sign."""

from dataclasses import replace

import pytest
import torch

from cutlayer.attacks.label.few_labels import FewLabels
from cutlayer.attacks.label.history import run_scores

from . import history_suite as suite
from .table import HISTORIES

CASE = HISTORIES["few_labels"]


class Values(FewLabels):
    """Regressions alone. Reference: nobody, 2024."""

    tasks = frozenset({"regression"})


class Guesser(Values):
    """Score at random. Reference: nobody, 2024."""

    def run(self, view, knowledge):
        unknown = ~knowledge.known_among(view.rows)
        return run_scores(view, torch.rand(len(view.rows), dtype=torch.float64), unknown)


class Memory(Values):
    """Score the known rows by what is known of them, as often as there are rows. Reference: nobody, 2024."""

    def run(self, view, knowledge):
        known, labels = knowledge.labels_among(view.rows)
        times = -(-len(view.rows) // len(known))
        rows, values = known.repeat(times), labels.repeat(times)
        return replace(super().run(view, knowledge), rows=rows, values=values, also={}, batch=torch.zeros_like(rows))


class Turning(Values):
    """Turn the sign of the scores from step to step. Reference: nobody, 2024."""

    def run(self, view, knowledge):
        scores = super().run(view, knowledge)
        sign = 1.0 - 2.0 * (view.epochs[0].steps[scores.rows] % 2)
        return replace(scores, values=scores.values * sign, also={})


@pytest.mark.parametrize(
    ("mutant", "check"),
    [
        (Guesser, suite.succeeds_undefended),
        (Guesser, suite.survives_an_invertible_map),
        (Turning, suite.succeeds_undefended),
        (Memory, suite.learns_nothing_from_random_labels),
        (Memory, suite.returns_well_formed_scores),
    ],
)
def test_a_mutant_fails(mutant, check):
    check(Values, CASE)
    with pytest.raises(AssertionError):
        check(mutant, CASE)
