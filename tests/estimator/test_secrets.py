"""Where the label draws of several fits come from."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import torch
from sklearn.base import clone

from cutlayer import LabelDPConfig, VerticalClassifier
from cutlayer.parties.active_setup import ActiveSetup
from tests.estimator.tables import classifier, tables


class Drawn(Exception):
    """Ends a fit whose labels are drawn."""


def drawn(labels, changed_labels="refuse", **changes) -> torch.Tensor:
    """The protected labels that a fit would train on."""
    seen: list[torch.Tensor] = []
    protect = ActiveSetup._protect_labels

    def spy(self, *given):
        protect(self, *given)
        seen.append(self.labels[self._train].clone())
        raise Drawn

    x, _ = tables()
    model = classifier(protections=[LabelDPConfig(eps=0.5, changed_labels=changed_labels)], key=None, **changes)
    with patch.object(ActiveSetup, "_protect_labels", spy), pytest.raises(Drawn):
        model.fit(x, labels)
    return seen[0]


def test_one_folder_of_secrets_draws_each_label_once_over_all_fits(tmp_path: Path) -> None:
    _, labels = tables()
    first = drawn(labels, secrets=tmp_path)
    assert torch.equal(first, drawn(labels, secrets=tmp_path))
    assert not torch.equal(first, drawn(labels))


@pytest.mark.filterwarnings("ignore:labels of the same rows were drawn before")
def test_another_table_of_the_same_length_is_drawn_on_its_own(tmp_path: Path) -> None:
    """Row numbers name other rows there: equal draws would let one table's known labels tell the other's."""
    _, labels = tables()
    other = labels.copy()
    other[:2] = labels[:2][::-1] if labels[0] != labels[1] else np.unique(labels)[::-1]
    mine = drawn(labels, secrets=tmp_path)
    with pytest.raises(ValueError, match=r"labels .* of the whole table as they were .* 'changed_labels: redraw'"):
        drawn(other, secrets=tmp_path)
    theirs = drawn(other, "redraw", secrets=tmp_path)
    assert (mine != theirs).double().mean() > 0.2


def test_no_representation_shows_the_key() -> None:
    """scikit-learn prints the parameters that are not the defaults; a notebook shows them all."""
    key = b"1234" * 8
    for model in (
        VerticalClassifier(key=key),
        clone(VerticalClassifier(key=key)),
        VerticalClassifier().set_params(key=key),
    ):
        assert model.key == key
        assert "1234" not in repr(model) + str(model) + model._repr_html_() + repr(model.get_params())
