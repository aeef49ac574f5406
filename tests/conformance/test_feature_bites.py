"""The checks on feature attacks must catch one that ignores the embeddings, and one that changes them."""

import pytest

from cutlayer.attacks.feature.base import FeatureAttack, Reconstruction, encoded_matrix
from cutlayer.attacks.feature.inversion import Inversion

from . import feature_suite as suite
from .table import FeatureCase


class Guesser(FeatureAttack):
    """Answer the mean of the known rows. Reference: nobody, 2024."""

    name = "guesser"
    reference = "nobody 2024, section 0"

    def check(self, view, knowledge):
        pass

    def run(self, view, knowledge):
        known = knowledge.auxiliary
        unknown = known.unknown(len(view.rows))
        mean = encoded_matrix(known.columns, known.codes, known.numbers).mean(dim=0)
        return Reconstruction(view.rows[unknown], mean.expand(len(unknown), -1))


class Vandal(Inversion):
    """Change what was received. Reference: nobody, 2024."""

    def run(self, view, knowledge):
        view.embeddings.mul_(1.5)
        return super().run(view, knowledge)


def test_an_attack_that_guesses_fails():
    suite.is_at_the_baseline_where_embeddings_are_unrelated(Guesser, FeatureCase())
    for check in (suite.succeeds_undefended, suite.refuses_what_it_lacks):
        with pytest.raises((AssertionError, pytest.fail.Exception)):
            check(Guesser, FeatureCase())


def test_an_attack_that_changes_the_embeddings_fails():
    with pytest.raises(AssertionError):
        suite.leaves_all_as_it_was(Vandal, FeatureCase())
