"""Guards of both sides: the alarm where a partner departs from the protocol, and none where it does not."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch

from cutlayer.attacks.malicious import TAMPERINGS, is_by_active_party
from cutlayer.attacks.malicious.base import Tampering
from cutlayer.config import Job, validated
from cutlayer.config.guard import GuardConfig
from cutlayer.errors import ConfigError, ProtocolError
from cutlayer.jobs.check import check_job
from cutlayer.parties.guards.embedding_guard import EmbeddingGuard
from cutlayer.parties.guards.guard import PENALTY_FACTOR, WINDOW_STEPS, GradientGuard, RowTest
from cutlayer.parties.session.observer import Observer
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import Keys
from cutlayer.training.malicious_runs import known_rows
from cutlayer.training.tables import open_table
from cutlayer.training.together import TrainedRun, train_together
from tests.parties.interruptions import Crash, Dying, halves
from tests.parties.runs import ACTIVE, KEY, PASSIVES, raw_job, run, tables
from tests.parties.test_all_rows_by_steps import GIVEN as HELD_BY_SOME
from tests.parties.test_all_rows_by_steps import raw as all_rows

TELCO = PASSIVES[0]
WARN, STOP = {"on_alarm": "warn"}, {"on_alarm": "stop"}
GIVEN = tables(rows=1200)
ROWS = torch.arange(64)


def job_of(guard: Mapping[str, Any] | None, privacy: Mapping[str, Any] | None = None, **changes: Any) -> Job:
    raw = raw_job(bottom={"kind": "mlp", "hidden": [16, 8]}, privacy=privacy, **{"epochs": 3, **changes})
    for party in raw["parties"].values():
        party |= {"guard": guard, "audit": {"rows": 600, "layers": False, "attacks": []}}
    return validated(Job, raw, "")


def train(
    job: Job,
    folder: Path,
    attack: str = "",
    *,
    given: Mapping[str, Any] = GIVEN,
    resume: bool = False,
    observer: Observer | None = None,
    **options: Any,
) -> TrainedRun:
    opened = {name: open_table(job, name, given) for name in job.parties}
    folder.mkdir(parents=True, exist_ok=True)
    out = RunFolder(folder)
    tampering: dict[str, Tampering] = {}
    if attack and is_by_active_party(attack):
        tampering[ACTIVE] = TAMPERINGS[attack](known=lambda schedule: known_rows(job, out, schedule), **options)
    elif attack:
        tampering[TELCO] = TAMPERINGS[attack](**options)
    keys, observed = Keys(folder / "keys", KEY), observer or Observer()
    return train_together(job, out, opened, keys, observed, tampering=tampering, resume=resume)


@cache
def warned(attack: str, *, epochs: int = 3, **options: Any) -> TrainedRun:
    """A training whose guards go on, once for all tests."""
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *_, **__: None)
        return train(job_of(WARN, epochs=epochs), Path(folder), attack, **options)


def alarming(attack: str, **options: Any) -> TrainedRun:
    """One whose alarm comes in its first two epochs, if it comes; an honest training has three."""
    return warned(attack, epochs=2, **options)


def stopped(folder: Path, attack: str, **options: Any) -> tuple[str, tuple[int, int]]:
    """Where and why a training is stopped by a guard: the error, and epoch and step of the alarm."""
    with pytest.raises(ProtocolError, match="as in an honest training") as refused:
        train(job_of(STOP), folder, attack, **options)
    said = re.search(r"\(epoch (\d+), step (\d+)\)", str(refused.value))
    assert said is not None
    return str(refused.value), (int(said[1]), int(said[2]))


def test_no_alarm_in_an_honest_training() -> None:
    honest = warned("")
    assert honest.active.alarms == ()
    assert honest.passives[TELCO].alarms == ()


def test_the_victim_of_a_hijack_raises_the_alarm_once_before_a_window_is_full() -> None:
    hijacked = alarming("hijack")
    (alarm,) = hijacked.passives[TELCO].alarms
    assert (alarm.party, alarm.peer) == (TELCO, ACTIVE)
    assert (alarm.epoch, alarm.step) <= (1, WINDOW_STEPS // 2)
    assert hijacked.active.alarms == ()


def test_a_hijack_is_seen_however_weak_it_is(tmp_path: Path) -> None:
    """Rows are judged by the directions of their gradients alone."""
    error, when = stopped(tmp_path, "hijack", strength=0.02)
    assert error.startswith(f"expected {TELCO}: messages of {ACTIVE} as")
    assert when <= (2, 8)


def test_a_hijack_that_covers_half_of_each_gradient_is_seen(tmp_path: Path) -> None:
    """Its rows stand out from the usual row of their batch, though most of their energy is on the directions."""
    error, when = stopped(tmp_path, "hijack", strength=0.25, cover=0.5)
    assert "off the directions" in error
    assert when < (3, 1)


def test_a_hijack_that_covers_most_of_itself_and_chosen_labels_stay_below_the_guard() -> None:
    """The adaptive attackers: they are not seen, and docs/results/malicious.md has what they still gain."""
    assert alarming("hijack", strength=0.25, cover=0.8).passives[TELCO].alarms == ()
    assert alarming("chosen_labels").passives[TELCO].alarms == ()


def batch_of(classes: int, off: float, number: int) -> torch.Tensor:
    """Gradients of 128 rows on the directions that a guard expects, but for some whose energy lies off them in part."""
    directions = 2 if classes == 2 else classes - 1
    order = torch.arange(128)
    rows = torch.eye(directions + 4)[order % directions] * (1 - 2 * (order // directions % 2))[:, None]
    for row in range(number):
        rows[row] *= (1 - off) ** 0.5
        rows[row, directions + row % 4] = off**0.5
    return rows


def judged(guard: GradientGuard, batches: Sequence[torch.Tensor]) -> int | None:
    """Number of the step in which a guard that goes on raised the alarm."""
    draw = torch.Generator().manual_seed(0)
    for step, gradient in enumerate(batches):
        own = torch.randn(len(gradient), 4, generator=draw)
        guard.add(0, step, gradient, torch.randn(gradient.shape, generator=draw), lambda own=own: own)
    return guard.alarms[0].step if guard.alarms else None


@pytest.mark.filterwarnings("ignore:.*as in an honest training")
@pytest.mark.parametrize(
    ("classes", "off", "rows", "penalised"),
    [
        (2, 0.7, 102, False),
        (2, 0.85, 22, False),
        (2, 0.85, 45, True),
        (2, 0.4, 133, False),
        (10, 0.3, 24, False),
        (10, 0.3, 49, True),
    ],
)
def test_the_limits_are_rows_of_a_window(classes: int, off: float, rows: int, penalised: bool) -> None:
    """So many of 16 batches of 128 rows are no alarm, and one more is; twice as many beside the party's own penalty."""
    for number in (rows, rows + 1):
        guard = GradientGuard(TELCO, ACTIVE, GuardConfig(on_alarm="warn", classes=classes), 16, penalised)
        counts = [number // WINDOW_STEPS + (step < number % WINDOW_STEPS) for step in range(WINDOW_STEPS)]
        step = judged(guard, [batch_of(classes, off, count) for count in counts])
        assert (step is not None) == (number > rows)


@pytest.mark.filterwarnings("ignore:.*as in an honest training")
def test_gradients_without_main_directions_are_an_alarm_after_the_first_window_alone() -> None:
    """Models that have just begun lack them; later a sender would hide rows among others that it bends."""
    draw = torch.Generator().manual_seed(1)
    broad, usual = [torch.randn(128, 6, generator=draw) for _ in range(4)], [batch_of(2, 0.0, 0)] * WINDOW_STEPS
    wanted = GuardConfig(on_alarm="warn")
    assert judged(GradientGuard(TELCO, ACTIVE, wanted, 6), [*broad, *usual]) is None
    step = judged(GradientGuard(TELCO, ACTIVE, wanted, 6), [*usual, *broad])
    assert step is not None
    assert step > WINDOW_STEPS


@pytest.mark.parametrize("settled", [False, True])
def test_a_row_counts_by_its_odds_over_those_of_the_usual_row(settled: bool) -> None:
    """12 times 1 to 9 are odds of 0.571; after a window the usual row counts at most as it may."""
    parts = torch.tensor([0.0] * 6 + [0.1] * 4 + [0.56, 0.58], dtype=torch.double)
    assert RowTest(0, 0.35, min_ratio=12, usual_quantile=2 / 3).count(parts, settled=settled) == 1 / 12
    assert RowTest(0, 0.57, min_ratio=12, usual_quantile=2 / 3).count(parts, settled=settled) == 1 / 12
    assert (
        RowTest(0, 0.35, min_ratio=12, usual_quantile=2 / 3, max_usual=0).count(parts, settled=settled)
        == (1 + settled) / 12
    )
    assert RowTest(0, 0.35, min_ratio=12).count(parts, settled=settled) == 2 / 12


def test_the_victim_of_probing_raises_the_alarm_in_the_first_probed_step(tmp_path: Path) -> None:
    error, when = stopped(tmp_path, "probing")
    assert error.startswith(f"expected {ACTIVE}: messages of {TELCO} as")
    assert when == (2, 1)


@pytest.mark.parametrize(
    ("attack", "epoch", "words"),
    [
        ("scaling", 2, "usual variance"),
        ("swap", 3, "follow those of the same rows"),
        ("replay", 2, "are those of the epoch before"),
    ],
)
def test_the_label_owner_sees_what_partners_make_of_their_embeddings(
    tmp_path: Path, attack: str, epoch: int, words: str
) -> None:
    error, when = stopped(tmp_path, attack)
    assert words in error
    assert when[0] <= epoch


def test_smaller_changes_stay_below_the_guard() -> None:
    assert alarming("probing", spread=0.8).active.alarms == ()
    assert alarming("scaling", spread=1.2).active.alarms == ()


def test_a_guard_changes_nothing_of_an_honest_training(tmp_path: Path) -> None:
    without = train(job_of(None, epochs=1), tmp_path).active.step_losses
    assert len(without) > WINDOW_STEPS
    assert without == warned("").active.step_losses[: len(without)]


def test_noise_on_gradients_is_no_alarm(tmp_path: Path) -> None:
    """Where the partner has said that it protects its gradients; else the guard takes it for an attack."""
    noisy = train(job_of(WARN | {"protected": True}, privacy={"iso_noise": {"ratio": 12}}, epochs=2), tmp_path / "a")
    assert noisy.passives[TELCO].alarms == ()
    with pytest.raises(ProtocolError, match=r"state guard\.protected"):
        train(job_of(STOP, privacy={"iso_noise": {"ratio": 12}}), tmp_path / "b")


def test_a_resumed_guard_has_seen_what_came_before(tmp_path: Path) -> None:
    """Killed within an epoch and after one, it ends with the same state as a guard that was never interrupted."""
    job, given = job_of(WARN, checkpoint_every=4, epochs=2), tables(rows=480)  # of six steps an epoch
    train(job, tmp_path / "whole", given=given)
    for steps, resume in ((5, False), (3, True)):
        with pytest.raises(Crash):
            train(job, tmp_path / "cut", given=given, observer=Dying(steps), resume=resume)
    train(job, tmp_path / "cut", given=given, resume=True)
    whole, cut = (halves(tmp_path / name, job) for name in ("whole", "cut"))
    seen = {name: sorted(key for key in tensors if key.startswith("last/guard/")) for name, tensors in whole.items()}
    assert seen == {
        ACTIVE: [f"last/guard/{TELCO}/mean", f"last/guard/{TELCO}/rows"],
        TELCO: ["last/guard/products", "last/guard/targets"],
    }
    for name, keys in seen.items():
        for key in keys:  # NaN for rows that were never sent
            torch.testing.assert_close(cut[name][key], whole[name][key], rtol=0, atol=0, equal_nan=True)


def test_a_row_that_moved_is_compared_with_the_farthest_rows_of_former_batches() -> None:
    """Up to a limit, beyond which a partner cannot raise it by far rows of its own."""
    draw = torch.Generator().manual_seed(0)
    for energy, far, seen in ((16.0, 1.0, True), (16.0, 8.0, False), (19.0, 8.0, False), (22.0, 30.0, True)):
        guard = EmbeddingGuard(ACTIVE, GuardConfig(on_alarm="warn"), 64, 0)
        honest = torch.randn(64, 8, generator=draw)
        guard.add(0, 0, TELCO, ROWS, honest)
        guard._peers[TELCO].farthest = far
        moved = honest.clone()
        direction = -honest[0] / honest[0].norm()
        for length in torch.linspace(1, 60, 2000).tolist():
            moved[0] = length * direction
            if measured_outlier(moved) >= energy:
                break
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            guard._peers[TELCO].variance = float(moved.double().var(dim=0, correction=0).sum())
            guard.add(1, 0, TELCO, ROWS, moved + 1e-3 * torch.randn(64, 8, generator=draw))
        assert ["elsewhere" in alarm.detail for alarm in guard.alarms] == [True] * seen


def measured_outlier(rows: torch.Tensor) -> float:
    energies = (rows.double() - rows.double().mean(dim=0)).square().sum(dim=1)
    return float(energies[0] / energies.mean())


UP = torch.tensor([1.0, -1.0] * 4)


@pytest.mark.parametrize(("turned", "protected", "limit"), [(True, False, 14), (False, False, 40), (True, True, None)])
def test_a_row_that_stands_out_is_seen_sooner_where_it_was_elsewhere(
    turned: bool, protected: bool, limit: float | None
) -> None:
    first = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
    first[0] = -UP if turned else UP
    for length in torch.linspace(4, 30, 14).tolist():
        rows = first.clone()
        rows[0] = length * UP / 8**0.5
        guard = EmbeddingGuard(ACTIVE, GuardConfig(on_alarm="warn", protected=protected), 64, 0)
        guard.add(0, 0, TELCO, ROWS, first)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            guard.add(1, 0, TELCO, ROWS, rows + 1e-2 * torch.randn(64, 8, generator=torch.Generator().manual_seed(1)))
        far = [alarm for alarm in guard.alarms if "as far from the mean" in alarm.detail]
        if not guard.alarms or far:
            assert bool(far) == (limit is not None and measured_outlier(rows) > limit)


@pytest.mark.parametrize(
    ("kept", "added", "seen"),
    [(0.3, 0.5, False), (1.8, 6.4, False), (0.2, 0.8, True), (0.0, 1.0, True)],
)
def test_embeddings_must_follow_those_of_the_same_rows_by_slope_or_by_correlation(
    kept: float, added: float, seen: bool
) -> None:
    """Noise shrinks those of honest models, which learn on and stretch them; swapped ones do neither."""
    draw = torch.Generator().manual_seed(0)
    rows = torch.arange(4000)
    first, other = (torch.randn(4000, 8, generator=draw) for _ in range(2))
    guard = EmbeddingGuard(ACTIVE, GuardConfig(on_alarm="stop"), 4000, 0)
    guard.add(1, 0, TELCO, rows, first)
    now = kept * first + added * other
    guard._peers[TELCO].variance = float(now.var(dim=0, correction=0).sum())
    if seen:
        with pytest.raises(ProtocolError, match="follow those of the same rows"):
            guard.add(2, 0, TELCO, rows, now)
    else:
        guard.add(2, 0, TELCO, rows, now)


@pytest.mark.filterwarnings("ignore:.*as in an honest training")
def test_a_guard_that_resumes_after_every_step_sees_what_one_sees_that_never_stopped() -> None:
    """A partner could else break the link before each alarm: the windows of both alarms are in the checkpoint."""
    wanted, draw = GuardConfig(on_alarm="warn"), torch.Generator().manual_seed(0)
    batches = [batch_of(2, 0.7, 7) for _ in range(WINDOW_STEPS)]
    whole, cut = (GradientGuard(TELCO, ACTIVE, wanted, 16) for _ in range(2))
    for step, gradient in enumerate(batches):
        own, sent = torch.randn(128, 4, generator=draw), torch.randn(128, 16, generator=draw)
        for guard in (whole, cut):
            guard.add(0, step, gradient[:, :16], sent[:, : gradient.shape[1]], lambda own=own: own)
        tensors, plain = cut.snapshot()
        cut = GradientGuard(TELCO, ACTIVE, wanted, 16)
        cut.load(tensors, json.loads(json.dumps(plain)))
        assert len(cut._shares) == step + 1
        assert (cut.alarms, cut._window, cut._shares) == (whole.alarms, whole._window, whole._shares)
    assert len(whole._window) == WINDOW_STEPS - 1
    assert whole.alarms


def test_an_embedding_guard_that_resumes_remembers_every_peer() -> None:
    wanted, draw = GuardConfig(on_alarm="warn"), torch.Generator().manual_seed(0)
    guard = EmbeddingGuard(ACTIVE, wanted, 64, 5)
    for epoch in range(3):
        for peer in (TELCO, "shop"):
            guard.add(0, epoch, peer, ROWS[epoch:], (3 - epoch) * torch.randn(64 - epoch, 4, generator=draw))
    tensors, plain = guard.snapshot()
    resumed = EmbeddingGuard(ACTIVE, wanted, 64, 5)
    resumed.load({name: tensor.clone() for name, tensor in tensors.items()}, json.loads(json.dumps(plain)))
    assert [*resumed._peers] == [TELCO, "shop"]
    for peer, memory in guard._peers.items():
        assert memory.largest > memory.variance
        for name, value in vars(memory).items():
            again = getattr(resumed._peers[peer], name)
            torch.testing.assert_close(torch.as_tensor(again), torch.as_tensor(value), rtol=0, atol=0, equal_nan=True)


def test_an_alarm_about_one_partner_hides_none_about_each_partner() -> None:
    guard, draw = EmbeddingGuard(ACTIVE, GuardConfig(on_alarm="warn"), 64, 0), torch.Generator().manual_seed(0)
    for peer, scale in ((TELCO, 1.0), ("shop", 50.0)):
        guard.add(1, 0, peer, ROWS, scale * torch.randn(64, 4, generator=draw))
    assert guard.alarms == [], "each is compared with its own batches"
    for peer, scale in ((TELCO, 9.0), ("shop", 450.0), (TELCO, 90.0)):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            guard.add(1, 1, peer, ROWS, scale * torch.randn(64, 4, generator=draw))
        assert len(seen) == (scale != 90.0), "one alarm for each"
    assert [alarm.peer for alarm in guard.alarms] == [TELCO, "shop"]


def test_an_alarm_is_not_forgotten_by_a_resume() -> None:
    guard = EmbeddingGuard(ACTIVE, GuardConfig(on_alarm="warn"), 64, 0)
    draw = torch.Generator().manual_seed(0)
    guard.add(1, 0, TELCO, ROWS, torch.randn(64, 4, generator=draw))
    with pytest.warns(UserWarning, match="usual variance"):
        guard.add(1, 1, TELCO, ROWS, 9 * torch.randn(64, 4, generator=draw))
    resumed = EmbeddingGuard(ACTIVE, GuardConfig(on_alarm="warn"), 64, 0)
    resumed.load(*guard.snapshot())
    assert resumed.alarms == guard.alarms


def test_rows_that_a_partner_lacks_are_no_embeddings(tmp_path: Path) -> None:
    """On all rows of the label owner its table has zeros for them, which are not judged."""
    made = all_rows(epochs=4)
    for party in made["parties"].values():
        party["guard"] = WARN
    honest = run(validated(Job, made, ""), HELD_BY_SOME, tmp_path)
    assert honest.active.alarms == ()
    assert all(passive.alarms == () for passive in honest.passives.values())


def test_the_embedding_guard_sees_scale_and_shift_and_not_slow_growth() -> None:
    draw = torch.Generator().manual_seed(0)
    honest = [torch.randn(64, 4, generator=draw) * 1.1**step for step in range(20)]
    for change, seen in ((1.0, False), (3.0, True), (0.3, True)):
        guard = EmbeddingGuard(ACTIVE, GuardConfig(on_alarm="stop"), 64, 0)
        for step, batch in enumerate(honest):
            guard.add(1, step, TELCO, ROWS, batch)
        last = torch.randn(64, 4, generator=draw) * 1.1**20 * change
        if seen:
            with pytest.raises(ProtocolError, match="usual variance"):
                guard.add(1, 20, TELCO, ROWS, last)
        else:
            guard.add(1, 20, TELCO, ROWS, last)
    guard = EmbeddingGuard(ACTIVE, GuardConfig(on_alarm="stop"), 64, 0)
    guard.add(1, 0, TELCO, ROWS, honest[0])
    with pytest.raises(ProtocolError, match="mean moved"):
        guard.add(1, 1, TELCO, ROWS, honest[1] + 5)


@pytest.mark.parametrize(
    ("changes", "seen"),
    [((1.8, 1.8), None), ((1 / 6, 0.0, 0.0, 1.0, 0.0, 2.0), None), ((3.0,), 2), ((0.0, 0.0, 0.0, 3.0), 5)],
)
def test_a_penalty_of_a_partner_may_draw_its_embeddings_together_and_let_them_go(
    changes: Sequence[float], seen: int | None
) -> None:
    draw = torch.Generator().manual_seed(0)
    guard = EmbeddingGuard(ACTIVE, GuardConfig(on_alarm="warn", protected=True), 64, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for step, change in enumerate((1.0, *changes)):
            guard.add(1, step, TELCO, ROWS, change * torch.randn(64, 4, generator=draw))
            resumed = EmbeddingGuard(ACTIVE, guard.settings, 64, 0)
            resumed.load(*guard.snapshot())
            guard = resumed
    assert [alarm.step for alarm in guard.alarms] == ([] if seen is None else [seen])


def test_the_guard_of_a_party_with_a_penalty_of_its_own_has_larger_limits(tmp_path: Path) -> None:
    job = job_of(WARN | {"protected": True})
    parties = {**job.parties, TELCO: job.parties[TELCO].model_copy(update={"privacy": {"nopeek": {"alpha": 1.0}}})}
    made: list[bool] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GradientGuard, "add", lambda guard, *_: made.append(guard._allowance == PENALTY_FACTOR))
        train(
            replace_parties(job, parties).model_copy(update={"train": job.train.model_copy(update={"epochs": 1})}),
            tmp_path,
        )
    assert all(made)
    assert made


def test_a_narrow_embedding_cannot_be_guarded() -> None:
    with pytest.raises(ConfigError, match="more than 3 columns"):
        GradientGuard(TELCO, ACTIVE, GuardConfig(on_alarm="warn", classes=4), 3)


def test_a_guard_without_anything_to_judge_is_refused() -> None:
    with pytest.raises(ConfigError, match="released once"):
        check_job(job_of(WARN, release="once"))


def test_a_guard_is_refused_beside_noise_on_the_embeddings() -> None:
    """Honest gradients follow from the noise that was sent: it raised the alarm in honest trainings."""
    job = job_of(WARN | {"protected": True})
    noise = {"dp_embedding": {"clip": 1.0, "noise_multiplier": 1.0}}
    noisy = job.parties[TELCO].model_copy(update={"privacy": noise})
    with pytest.raises(ConfigError, match="without dp_embedding"):
        check_job(replace_parties(job, {**job.parties, TELCO: noisy}))


@pytest.mark.parametrize(
    ("owner", "privacy"),
    [(ACTIVE, "iso_noise"), (ACTIVE, "dcor"), (TELCO, "dp_embedding"), (TELCO, "nopeek")],
)
def test_what_a_partner_protects_must_be_stated(owner: str, privacy: str) -> None:
    settings = {
        "iso_noise": {"ratio": 12},
        "dcor": {"alpha": 0.1},
        "dp_embedding": {"clip": 1.0, "noise_multiplier": 1},
        "nopeek": {"alpha": 1.0},
    }
    job = job_of(WARN)
    silent = {name: party.model_copy(update={"guard": None}) for name, party in job.parties.items() if name == owner}
    protected = silent[owner].model_copy(update={"privacy": {privacy: settings[privacy]}})
    with pytest.raises(ConfigError, match=f"protected: true beside {privacy}"):
        check_job(replace_parties(job, {**job.parties, owner: protected}))


def test_the_classes_of_the_label_must_be_stated() -> None:
    job = job_of(WARN, task="multiclass")
    with pytest.raises(ConfigError, match=r"guard\.classes"):
        check_job(job)
    stated = {
        name: party.model_copy(update={"guard": GuardConfig(on_alarm="warn", classes=3)})
        for name, party in job.parties.items()
    }
    check_job(replace_parties(job, stated))


def replace_parties(job: Job, parties: Mapping[str, Any]) -> Job:
    return job.model_copy(update={"parties": parties})
