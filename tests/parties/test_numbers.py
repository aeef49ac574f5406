"""Numbers that would destroy a model: refused by name at both sides, noticed at home, and never saved."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from cutlayer.channel import Kind, Message
from cutlayer.channel.codec import decode, encode
from cutlayer.config import Job, validated
from cutlayer.errors import ConfigError, Diverged, ProtocolError
from cutlayer.models import Inputs
from cutlayer.parties import active_setup
from cutlayer.parties.guards.numbers import check_gradients, check_weights
from cutlayer.parties.phases import passive_epochs
from cutlayer.parties.phases.active_side import ActiveSide
from cutlayer.parties.phases.passive_side import PassiveSide
from tests.parties.mutants import tamper, with_tensors
from tests.parties.runs import ACTIVE, PASSIVES, raw_job, run, tables, unaudited_job

TELCO = PASSIVES[0]
GIVEN = tables()
STEPS = 4
NUMBERS = {"NaN": math.nan, "inf": math.inf, "-inf": -math.inf, "1e38": 1e38, "1e30": 1e30, "1e10": 1e10}


def with_entry(value: float) -> Callable[[Message], list[Message]]:
    """The message with one number changed, after a passage through the real codec."""

    def change(tensor: Tensor) -> Tensor:
        changed = tensor.clone()
        changed[3, 1] = value
        return changed

    return lambda message: [decode(encode(item)) for item in with_tensors(change)(message)]


def weights(folder: Path, party: str) -> Iterator[tuple[str, Tensor]]:
    """The weights in all checkpoints of a party, the best one's included."""
    for path in sorted((folder / "checkpoint" / party).glob("*.safetensors")):
        yield from ((f"{path.stem}/{k}", t) for k, t in load_file(path).items() if t.is_floating_point())


@pytest.mark.parametrize(
    ("number", "nth"), [*((number, 1) for number in NUMBERS), ("NaN", STEPS + 1), ("1e10", STEPS + 1)]
)
def test_a_gradient_that_would_destroy_the_bottom_model_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: str, nth: int
) -> None:
    tamper(monkeypatch, Kind.GRADIENT, with_entry(NUMBERS[number]), nth=nth)
    what = "rows of norm up to .*" if math.isfinite(NUMBERS[number]) else "finite numbers"
    place = f"{what} in the gradient of {ACTIVE} for epoch {nth // STEPS}, step 1, got"
    with pytest.raises(ProtocolError, match=place):
        run(unaudited_job(), GIVEN, tmp_path)
    saved = dict(weights(tmp_path, TELCO))
    assert any(name.startswith("best/") for name in saved) == (nth > STEPS)
    assert all(bool(tensor.isfinite().all()) for tensor in saved.values())


@pytest.mark.parametrize(
    ("kind", "number"),
    [*((Kind.EMBEDDING, number) for number in NUMBERS), (Kind.EVALUATION, "NaN"), (Kind.EVALUATION, "1e10")],
)
def test_an_embedding_that_would_destroy_the_top_model_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Kind, number: str
) -> None:
    tamper(monkeypatch, kind, with_entry(NUMBERS[number]), nth=1)
    place = "epoch 0, step 1" if kind == Kind.EMBEDDING else "epoch 1, step 0"
    with pytest.raises(ProtocolError, match=f"in the embedding of {TELCO} for {place}, got"):
        run(unaudited_job(), GIVEN, tmp_path)
    assert all(bool(tensor.isfinite().all()) for _, tensor in weights(tmp_path, ACTIVE))


@pytest.mark.parametrize("number", ["NaN", "1e30"])
def test_a_single_release_is_refused_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: str) -> None:
    tamper(monkeypatch, Kind.RELEASE, with_entry(NUMBERS[number]))
    with pytest.raises(ProtocolError, match=f"in the embedding of {TELCO} for epoch -1, step 0, got"):
        run(unaudited_job(release="once"), GIVEN, tmp_path)


@pytest.mark.parametrize("number", ["NaN", "1e38"])
def test_a_gradient_of_the_warm_up_is_refused_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: str
) -> None:
    tamper(monkeypatch, Kind.GRADIENT, with_entry(NUMBERS[number]))
    with pytest.raises(ProtocolError, match=f"in the gradient of {ACTIVE} for epoch 0, step 0, got"):
        run(unaudited_job(release="once", warmup_epochs=1), GIVEN, tmp_path)


@pytest.mark.parametrize(
    ("owner", "kind", "limits"),
    [(TELCO, Kind.GRADIENT, {"gradient_norm": 50.0}), (ACTIVE, Kind.EMBEDDING, {"embedding_norm": 50.0})],
)
@pytest.mark.parametrize(("sent", "taken"), [(30.0, True), (70.0, False)])
def test_each_party_sets_its_own_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: str, kind: Kind, limits: Any, sent: float, taken: bool
) -> None:
    raw = raw_job(epochs=1)
    raw["parties"][owner]["limits"] = limits
    tamper(monkeypatch, kind, with_entry(sent))
    job = validated(Job, raw, "")
    if taken:
        run(job, GIVEN, tmp_path)
    else:
        with pytest.raises(ProtocolError, match=rf"rows of norm up to 50 .*, got 70.*; .*limits\.{next(iter(limits))}"):
            run(job, GIVEN, tmp_path)


@pytest.mark.parametrize("limits", [{"gradient_norm": 0}, {"embedding_norm": -1.0}, {"embedding_norm": math.inf}])
def test_a_limit_is_a_positive_number(limits: dict[str, float]) -> None:
    raw = raw_job()
    raw["parties"][TELCO]["limits"] = limits
    with pytest.raises(ConfigError, match=rf"parties\.{TELCO}\.limits\."):
        validated(Job, raw, "")


def test_limits_are_nobody_elses_business() -> None:
    raw = raw_job()
    plain = validated(Job, raw, "").digest()
    raw["parties"][TELCO]["limits"] = {"gradient_norm": 5.0}
    assert validated(Job, raw, "").digest() == plain


class Broken(nn.Module):
    """A bottom model whose embedding has one NaN from the sixth training batch on."""

    def __init__(self, inputs: Inputs) -> None:
        super().__init__()
        self.width, self.calls, self.linear = 4, 0, nn.Linear(inputs.numbers, 4)

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        embedding: Tensor = self.linear(numbers)
        self.calls += self.training
        return embedding if self.calls < 6 else embedding + torch.where(torch.arange(4) == 1, math.nan, 0.0)


NOISY = {"dp_embedding": {"clip": 1.0, "epsilon": 8.0, "delta": 1e-5}}


@pytest.mark.parametrize("privacy", [{}, NOISY], ids=["bare", "noisy"])
def test_a_party_notices_its_own_divergence_before_its_noise_hides_it(tmp_path: Path, privacy: Any) -> None:
    bottoms = {ACTIVE: {"kind": "mlp", "hidden": [4]}, TELCO: {"kind": "python", "path": f"{__name__}:Broken"}}
    raw = raw_job(bottom=bottoms)
    raw["parties"][TELCO]["privacy"] = privacy
    result = f"training diverged: the embedding of epoch 1, step 1 at {TELCO} has NaN or infinity"
    with pytest.raises(Diverged, match=result):
        run(validated(Job, raw, ""), GIVEN, tmp_path)


def test_the_active_party_is_to_blame_for_its_own_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build = active_setup.top_of

    def broken(*args: Any, **options: Any) -> Any:
        top = build(*args, **options)
        forward, calls = top.forward, []

        def later(embeddings: Any) -> Tensor:
            calls.append(1)
            logits: Tensor = forward(embeddings)
            return logits if len(calls) < 3 else logits * math.inf

        monkeypatch.setattr(top, "forward", later)
        return top

    monkeypatch.setattr(active_setup, "top_of", broken)
    with pytest.raises(Diverged, match=rf"the loss at {ACTIVE} is (nan|inf) in epoch 0, step 2; lower train\."):
        run(unaudited_job(), GIVEN, tmp_path)


def poison(model: nn.Module, number: float) -> None:
    with torch.no_grad():
        next(model.parameters()).view(-1)[0] = number


@pytest.mark.parametrize("entries", [[math.inf], [math.inf, -math.inf], [math.nan], [1.0, -math.inf]])
def test_one_number_that_is_not_finite_is_found_among_weights(entries: list[float]) -> None:
    whole = {
        "module/a": torch.full((1000,), 3e38),
        "module/b": torch.zeros(0),
        "random": torch.zeros(9, dtype=torch.uint8),
    }
    check_weights(whole, TELCO, 0)  # whose sum is beyond float32
    broken = torch.ones(1000)
    broken[400 : 400 + len(entries)] = torch.tensor(entries)
    with pytest.raises(Diverged, match="optimizer/0/exp_avg and 0 more"):
        check_weights({**whole, "optimizer/0/exp_avg": broken}, TELCO, 0)


def test_weights_that_are_not_finite_are_never_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A NaN comes with the last step of an epoch, after all embeddings were sent."""
    whole, save = run(unaudited_job(epochs=3), GIVEN, tmp_path / "whole").active.step_losses, passive_epochs.save

    def poisoned(side: PassiveSide, end: Message) -> None:
        if side.epoch == 1:
            poison(side.setup.bottom, math.nan)
        save(side, end)

    with monkeypatch.context() as patched:
        patched.setattr(passive_epochs, "save", poisoned)
        with pytest.raises(Diverged, match=f"after epoch 1 module/.* of {TELCO} hold NaN"):
            run(unaudited_job(epochs=3), GIVEN, tmp_path / "run")
    saved = dict(weights(tmp_path / "run", TELCO))
    assert {name.split("/")[0] for name in saved} == {"best", "epoch-0000"}
    assert all(bool(tensor.isfinite().all()) for tensor in saved.values())
    resumed = run(unaudited_job(epochs=3), GIVEN, tmp_path / "run", resume=True).active.step_losses
    assert resumed == whole[STEPS:]


def test_the_active_partys_weights_are_checked_before_any_peer_saves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluate = ActiveSide.evaluate

    def poisoned(self: ActiveSide, part: str, epoch: int) -> Any:
        metrics = yield from evaluate(self, part, epoch)
        if epoch == 1:
            poison(self.setup.top, math.inf)
        return metrics

    monkeypatch.setattr(ActiveSide, "evaluate", poisoned)
    with pytest.raises(Diverged, match=f"after epoch 1 module/top.* of {ACTIVE} hold NaN"):
        run(unaudited_job(), GIVEN, tmp_path)
    for party in (ACTIVE, TELCO):
        assert {path.stem for path in (tmp_path / "checkpoint" / party).glob("epoch-*")} == {"epoch-0000"}


def test_a_hostile_message_survives_the_codec() -> None:
    message = Message(Kind.GRADIENT, ACTIVE, TELCO, "run", 0, 0, 0, bytes(16), {"gradient": torch.zeros(5, 3)})
    (hostile,) = with_entry(math.nan)(replace(message))
    assert bool(hostile.tensors["gradient"].isnan().any())


def test_the_gradient_of_every_party_is_checked_before_it_is_protected() -> None:
    good, long = torch.ones(2, 3), torch.full((2, 3), 1e6)
    check_gradients({TELCO: good, "shop": good}, 10.0, ACTIVE, 1, 2)
    for given in ({TELCO: good, "shop": long}, {"shop": good * math.nan, TELCO: good}):
        with pytest.raises(Diverged, match="cut gradient for shop in epoch 1, step 2"):
            check_gradients(given, 10.0, ACTIVE, 1, 2)
