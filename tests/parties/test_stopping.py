"""When training stops and which epoch is kept, also where the metric is undefined."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from cutlayer.config import TrainConfig
from cutlayer.config.train import AUTO_PATIENCE
from cutlayer.parties.stopping import EarlyStopping, may_stop
from cutlayer.problem.task import Task
from tests.parties.runs import make_job

NAN = math.nan


def judged(metrics: list[float], **train: Any) -> tuple[list[bool], EarlyStopping]:
    """What is said of each epoch until training stops."""
    job = make_job(epochs=train.pop("epochs", len(metrics)), **train)
    stopping, kept = EarlyStopping(), []
    for epoch, metric in enumerate(metrics):
        kept.append(stopping.update({"auc": metric, "log_loss": 1.0}, "auc", epoch, job))
        if stopping.stop:
            break
    return kept, stopping


@pytest.mark.parametrize(
    ("metrics", "kept", "best"),
    [
        ([0.5, 0.6, 0.55, 0.7], [True, True, False, True], 3),
        ([0.7, 0.7, 0.6], [True, False, False], 0),
        ([-3.0, -2.0], [True, True], 1),
        ([NAN, NAN, NAN], [True, True, True], 2),
        ([NAN, 0.5, 0.4], [True, True, False], 1),
        ([0.5, NAN, 0.6], [True, False, True], 2),
        ([0.5, NAN, NAN], [True, False, False], 0),
    ],
)
def test_the_best_epoch_is_kept(metrics: list[float], kept: list[bool], best: int) -> None:
    text, stopping = judged(metrics)
    assert text == kept
    assert stopping.best_epoch == best


def test_of_epochs_with_equal_metrics_the_one_of_lower_loss_is_kept() -> None:
    job, stopping = make_job(epochs=9, early_stop={"patience": 3}), EarlyStopping()
    losses = [0.6, 0.3, 0.4, 0.1]
    kept = [stopping.update({"auc": 1.0, "log_loss": loss}, "auc", epoch, job) for epoch, loss in enumerate(losses)]
    assert kept == [True, True, False, True]
    assert stopping.best_epoch == 3
    assert stopping.stop, "a lower loss is no reason to train on"
    assert EarlyStopping.from_json(stopping.to_json()) == stopping


def test_a_party_lets_a_reference_stop_as_early_as_very_many_rows_let_it() -> None:
    """A run of 10^6 rows ended with a partner's refusal where three epochs in a row had gained nothing."""
    job = make_job()
    train = TrainConfig(split=job.train.split)
    reference = job.model_copy(update={"train": train.for_comparison()})
    stopping = EarlyStopping()
    for epoch in range(AUTO_PATIENCE):
        stopping.update({"auc": 0.7}, "auc", epoch, reference, 10**6)
        assert may_stop(epoch, reference) >= stopping.stop
    assert stopping.stop
    ended = job.model_copy(update={"train": train})
    assert [may_stop(epoch, ended) for epoch in (AUTO_PATIENCE - 2, AUTO_PATIENCE - 1)] == [False, True]


def test_training_ends_with_the_last_epoch_of_the_job() -> None:
    kept, stopping = judged([0.1, 0.2, 0.3, 0.4], epochs=3)
    assert len(kept) == 3
    assert stopping.stop


@pytest.mark.parametrize(
    ("metrics", "patience", "epochs_run"),
    [
        ([0.5, 0.4, 0.4, 0.9], 2, 3),
        ([0.5, 0.4, 0.6, 0.5, 0.5, 0.9], 2, 5),
        ([0.5, 0.4, 0.9], 1, 2),
        ([0.5, 0.5, 0.5], 2, 3),
    ],
)
def test_patience_is_counted_from_the_best_epoch(metrics: list[float], patience: int, epochs_run: int) -> None:
    kept, stopping = judged(metrics, epochs=len(metrics) + 3, early_stop={"patience": patience})
    assert len(kept) == epochs_run
    assert stopping.stop


def test_who_improves_goes_on() -> None:
    kept, stopping = judged([0.1, 0.2, 0.3], epochs=4, early_stop={"patience": 1})
    assert kept == [True, True, True]
    assert not stopping.stop


def test_a_gain_below_the_least_one_counts_as_none() -> None:
    kept, stopping = judged([0.50, 0.54, 0.58, 0.9], epochs=9, early_stop={"patience": 2, "min_delta": 0.1})
    assert kept == [True, False, False]
    assert stopping.best_epoch == 0


def test_without_stated_epochs_the_loss_decides_and_patience_is_limited() -> None:
    job = make_job().model_copy(update={"train": TrainConfig()})
    stopping, epoch = EarlyStopping(), 0
    while not stopping.stop:
        metrics = {"auc": 0.5 + epoch / 100, "log_loss": abs(epoch - 3.0)}
        assert stopping.update(metrics, "auc", epoch, job) == (epoch <= 3)
        epoch += 1
    assert (stopping.best_epoch, epoch) == (3, 4 + AUTO_PATIENCE)


def test_a_regression_without_a_loss_among_its_metrics_goes_by_its_headline() -> None:
    job = make_job().model_copy(update={"train": TrainConfig()})
    assert EarlyStopping().update({"r2": -3.0, "mae": 2.0}, "r2", 0, job)


@pytest.mark.parametrize("by", ["metric", "loss"])
def test_a_party_that_forges_what_it_sends_in_evaluation_learns_one_label_of_each_epoch(by: str) -> None:
    """The bits are about all validation rows together only while every party follows the protocol."""
    draw = torch.Generator().manual_seed(1)
    rows, epochs = 400, 24
    truth = torch.rand(rows, generator=draw) < 0.3
    task = Task("binary", ("0", "1"))
    job, stopping = make_job(epochs=epochs, best_by=by), EarlyStopping()
    others = torch.randn(rows, generator=draw)
    # What the party's forged embedding adds to the logits: far more than the other parties do.
    forged = 40.0 * torch.rand(rows, generator=draw) - 20.0
    guessed = []
    for epoch in range(epochs):
        tried = forged.clone()
        if epoch:
            tried[epoch] = 40.0  # above all other rows
        metrics = task.evaluate((tried + others)[:, None], truth.long())
        is_best = stopping.update(metrics, "auc", epoch, job)
        if epoch:
            guessed.append(is_best)
        if is_best:
            forged = tried
    assert guessed == truth[1:epochs].tolist()
