"""The completion checks must catch an attack that ignores the kept model, and one that trains it in place."""

import pytest
import torch
from torch import nn

from cutlayer.attacks.catalogue import ModelCompletion
from cutlayer.attacks.completion.base import Completion, CompletionAttack, Variant

from . import completion_suite as suite
from .table import CompletionCase


class Flat(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.classes = classes

    def forward(self, codes, numbers):
        return numbers[:, : self.classes]


class Guesser(CompletionAttack):
    """Never look at the kept model. Reference: nobody, 2024."""

    name = "guesser"
    reference = "nobody 2024, section 0"
    variants = (Variant("tuned guess", trains_extractor=True),)

    def run(self, view, knowledge):
        return Completion(view.task, Flat(len(view.task.classes)))


class Vandal(Guesser):
    """Change the kept model. Reference: nobody, 2024."""

    name = "vandal"
    variants = ModelCompletion.variants

    def run(self, view, knowledge):
        with torch.no_grad():
            next(view.bottom.parameters()).add_(1.0)
        return super().run(view, knowledge)


def test_an_attack_that_guesses_fails():
    suite.refuses_what_it_lacks(Guesser, CompletionCase())
    with pytest.raises(AssertionError):
        suite.succeeds_undefended(Guesser, CompletionCase())


def test_an_attack_that_changes_the_kept_model_fails():
    with pytest.raises(AssertionError):
        suite.leaves_all_as_it_was(Vandal, CompletionCase())
