from __future__ import annotations

from typing import Any

import pytest
import torch
from sklearn.metrics import accuracy_score, roc_auc_score

from cutlayer.attacks.catalogue import Attribute
from cutlayer.attacks.feature import attribute, decoder
from cutlayer.attacks.feature.attribute import MIN_PROBABILITY, best_kernel_share, probabilities, questions
from cutlayer.attacks.feature.view import FeatureView
from cutlayer.attacks.knowledge import Auxiliary, Knowledge
from cutlayer.audit.features.measures import measure_inferences
from cutlayer.data.encoded import ColumnSpec
from cutlayer.errors import NotApplicable

ABOUT = {"run": "this run", "party": "telco", "attack": "attribute", "release": "toy", "known": 0, "rows": 0}
COLUMNS = ColumnSpec((4, 40), 2, ("plan", "street"), ("age", "bill"))
ROWS, KNOWN = 400, 150


def world() -> tuple[FeatureView, Auxiliary, tuple[torch.Tensor, torch.Tensor]]:
    """The embedding tells the plan well, the age a little and the bill not at all; a plan appears late."""
    draw = torch.Generator().manual_seed(2)
    plan = torch.randint(0, 3, (ROWS,), generator=draw)
    plan[::3] = 2
    plan[-5:] = 3
    street, numbers = torch.randint(0, 40, (ROWS,), generator=draw), torch.randn(ROWS, 2, generator=draw)
    hot = torch.nn.functional.one_hot(plan, 4).float()
    result = torch.cat([hot, numbers[:, :1] + 2 * torch.randn(ROWS, 1, generator=draw)], dim=1)
    embeddings = result + 0.45 * torch.randn(result.shape, generator=draw)
    codes = torch.stack([plan, street], dim=1).int()
    known = Auxiliary(COLUMNS, torch.arange(KNOWN), codes[:KNOWN], numbers[:KNOWN])
    return FeatureView("telco", torch.arange(ROWS) + 7, embeddings), known, (codes[KNOWN:], numbers[KNOWN:])


def test_figures_are_those_of_scikit_learn_beside_the_majority() -> None:
    view, known, (codes, numbers) = world()
    made = Attribute()(view, Knowledge(auxiliary_rows=known))
    assert made.keys() == {"plan", "age", "bill"}
    figures = list(measure_inferences(made, (codes, numbers), ABOUT, "bill"))
    assert [figure.column for figure in figures] == ["plan", "bill"]
    columns = {column.column: column for column in figures[0].columns}
    old = (numbers[:, 0] > known.numbers[:, 0].median()).numpy()
    assert columns["age"].value == pytest.approx(roc_auc_score(old, made["age"].scores.values.numpy()))
    assert columns["age"].accuracy == pytest.approx(accuracy_score(old, made["age"].scores.hard.numpy()))
    plan, seen = codes[:, 0].numpy(), codes[:, 0].numpy() < 3
    values = made["plan"].scores.values.exp().numpy()
    assert columns["plan"].value == pytest.approx(roc_auc_score(plan[seen], values[seen], multi_class="ovr"))
    assert columns["plan"].accuracy == pytest.approx(accuracy_score(plan, made["plan"].scores.hard.numpy()))
    most = int(torch.bincount(known.codes[:, 0]).argmax())
    assert most == 2
    assert columns["plan"].majority == pytest.approx((plan == most).mean())
    assert columns["plan"].accuracy > columns["plan"].majority + 0.2
    assert abs(columns["bill"].value - 0.5) < 0.12
    assert 0.55 < columns["age"].value < 0.8
    assert figures[0].low < figures[0].value <= figures[0].high
    assert figures[0].gains


def test_the_share_of_the_kernels_is_chosen_by_rows_that_the_classifier_was_not_fitted_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On its own rows a classifier looks better than it is, and would get the whole weight."""
    fitted: list[Any] = []
    judged: list[torch.Tensor] = []
    fit, share = decoder.fit_decoder, attribute.best_kernel_share
    monkeypatch.setattr(decoder, "fit_decoder", lambda *given: fitted.append(fit(*given)) or fitted[-1])
    monkeypatch.setattr(attribute, "best_kernel_share", lambda *given: judged.append(given[2]) or share(*given))
    view, known, _ = world()
    Attribute()(view, Knowledge(auxiliary_rows=known))
    for question, model, classes in zip(questions(known), fitted, judged, strict=True):
        assert len(classes) == KNOWN // 5
        assert torch.equal(classes, question.classes(known.codes, known.numbers)[model.validation])


def test_what_is_asked() -> None:
    _, known, (codes, numbers) = world()
    asked = {question.column: question for question in questions(known)}
    assert asked.keys() == {"plan", "age", "bill"}  # 40 streets are too many
    assert asked["plan"].codes == (0, 1, 2)
    assert set(asked["plan"].classes(codes, numbers).tolist()) == {-1, 0, 1, 2}
    assert abs(float(asked["age"].classes(codes, numbers).double().mean()) - 0.5) < 0.1


def test_columns_that_do_not_vary_cannot_be_asked_about() -> None:
    view, known, _ = world()
    flat = Auxiliary(
        ColumnSpec((4,), 1, ("plan",), ("age",)), known.indices, 0 * known.codes[:, :1], 0 * known.numbers[:, :1]
    )
    with pytest.raises(NotApplicable, match="20 codes at most"):
        Attribute()(view, Knowledge(auxiliary_rows=flat))


def test_the_share_of_least_log_loss_is_taken() -> None:
    right = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.7, 0.3]], dtype=torch.float64)
    classes = torch.tensor([0, 1, 0])
    assert best_kernel_share(right, 1 - right, classes) == 0
    assert best_kernel_share(1 - right, right, classes) == 0.75
    sure = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]], dtype=torch.float64)  # wrong in the last row
    assert 0 < best_kernel_share(sure, torch.full((3, 2), 0.5, dtype=torch.float64), classes) <= 0.75


def test_a_regression_of_classes_becomes_probabilities() -> None:
    made = probabilities(torch.tensor([[-0.2, 0.5, 0.5], [-1.0, -1.0, -1.0]], dtype=torch.float64))
    assert made[0].tolist() == pytest.approx([MIN_PROBABILITY, 0.5, 0.5], abs=1e-5)
    assert made[1].tolist() == pytest.approx([1 / 3] * 3)
