"""The record of the followed rows: the same rows in every epoch, exactly as their messages crossed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from cutlayer.channel.row_history import (
    NO_STEP,
    Follower,
    draw_followed,
    read_followed,
    read_own_embeddings,
    write_own_embeddings,
)
from cutlayer.channel.transcript import Sampling
from cutlayer.errors import DataError

ALL = Sampling(steps_per_epoch=3, batch_size=4, steps=3, epochs=5, limit=10**9)


def epoch_of(follower: Follower, epoch: int, batches: list[Tensor]) -> dict[int, Tensor]:
    """Feed one epoch; returns the gradient of each row."""
    draw = torch.Generator().manual_seed(epoch)
    sent = {}
    for step, rows in enumerate(batches):
        gradients = torch.randn(len(rows), 2, generator=draw)
        follower.add(epoch, step, rows, {"telco": gradients + 1}, {"telco": gradients})
        sent |= dict(zip(rows.tolist(), gradients, strict=True))
    return sent


def test_a_step_without_a_row_of_a_partner_may_be_the_first(tmp_path: Path) -> None:
    """In a run on all rows a batch may have none that the partner has."""
    follower = Follower(tmp_path, torch.tensor([0, 5]), ALL)
    none = {"telco": torch.empty(0, 2)}
    follower.add(0, 0, torch.empty(0, dtype=torch.int64), none, none, {"telco": torch.empty(0, 2)})
    assert follower.current is not None
    assert follower.current.embeddings["telco"].shape == (2, 2)


def test_messages_of_the_same_rows_are_recorded_in_every_epoch(tmp_path: Path) -> None:
    rows = torch.tensor([2, 3, 7, 11])
    follower = Follower(tmp_path, rows, ALL)
    sent = []
    for epoch in range(2):
        order = torch.randperm(12, generator=torch.Generator().manual_seed(9 + epoch))
        sent.append(epoch_of(follower, epoch, [order[:4], order[4:8]]))
        assert follower.close(epoch)
    for number, epoch in enumerate(read_followed(tmp_path)):
        assert (epoch.epoch, epoch.rows.tolist()) == (number, rows.tolist())
        for index, row in enumerate(rows.tolist()):
            gradient = sent[number].get(row, torch.zeros(2))
            assert torch.equal(epoch.gradients["telco"][index], gradient)
            assert bool(epoch.steps[index] == NO_STEP) == (row not in sent[number])
            if row in sent[number]:
                assert torch.equal(epoch.embeddings["telco"][index], gradient + 1)


def test_sizes_are_those_of_all_rows_of_a_message(tmp_path: Path) -> None:
    follower = Follower(tmp_path, torch.tensor([0, 5]), ALL)
    sent = epoch_of(follower, 0, [torch.arange(4), torch.arange(4, 9)])
    restored = Follower(tmp_path, follower.rows, ALL)
    restored.load(0, follower.snapshot())
    assert restored.close(0)
    (epoch,) = read_followed(tmp_path)
    batches = [torch.stack([sent[row] for row in rows]).double() for rows in (range(4), range(4, 9))]
    expected = [float(batch.square().mean().sqrt()) for batch in batches]
    assert epoch.sizes["telco"][:, 0].tolist() == pytest.approx([*expected, 0.0])  # nothing was sent in the third step


def test_sizes_are_those_of_the_message_where_the_record_has_a_part_of_it(tmp_path: Path) -> None:
    """Of rows that one party lacks nothing is recorded, but the others were sent a gradient of these too."""
    follower = Follower(tmp_path, torch.tensor([0, 1]), Sampling(1, 2, 1, 1, limit=10**6))
    rows, whole = torch.tensor([0, 1]), torch.tensor([[1.0, 2.0], [3.0, 4.0], [50.0, 60.0]])
    follower.add(0, 0, rows, {"telco": whole[:2] + 1}, {"telco": whole[:2]}, {"telco": whole})
    assert follower.close(0)
    (epoch,) = read_followed(tmp_path)
    assert epoch.sizes["telco"][0, 0].item() == pytest.approx(float(whole.square().mean().sqrt()))


def test_epochs_are_thinned_to_the_limit(tmp_path: Path) -> None:
    follower = Follower(tmp_path, torch.arange(12), Sampling(1, 12, 1, 40, limit=8000))
    written = []
    for epoch in range(40):
        epoch_of(follower, epoch, [torch.arange(12)])
        written.append(follower.close(epoch))
    assert written[:2] == [True, True]
    assert 3 < sum(written) < 20
    assert sum(path.stat().st_size for path in tmp_path.glob("followed-*")) <= 8000


def test_the_drawn_rows_depend_on_the_secret_alone() -> None:
    training = torch.arange(100, 1100)
    first, second = draw_followed(training, 50, 1), draw_followed(training, 50, 2)
    assert torch.equal(first, draw_followed(training, 50, 1))
    assert len(set(first.tolist()) & set(second.tolist())) < 15
    assert torch.equal(first, first.sort().values)
    assert torch.isin(first, training).all()
    assert torch.equal(draw_followed(training, 5000, 3), training)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    write_own_embeddings(tmp_path, 3, torch.ones(2, 2))
    assert read_own_embeddings(tmp_path)[3].tolist() == [[1, 1], [1, 1]]
    for name, read in (
        ("own-0003", read_own_embeddings),
        ("followed-0000", lambda folder: list(read_followed(folder))),
    ):
        (tmp_path / f"{name}.safetensors").write_bytes(b"damaged")
        with pytest.raises(DataError, match=f"{name}.safetensors is not a readable transcript"):
            read(tmp_path)


def test_a_file_that_was_begun_holds_what_came_before_the_close(tmp_path: Path) -> None:
    """The last step begins the file; a step that comes again is in it too."""
    rows, follower = torch.arange(8), Follower(tmp_path, torch.arange(8), Sampling(2, 4, 2, 2, limit=10**9))
    first, again = torch.ones(4, 2), torch.full((4, 2), 3.0)
    follower.add(0, 0, rows[:4], {"telco": first}, {})
    follower.add(0, 1, rows[4:], {"telco": first}, {})
    assert [path.name for path in tmp_path.iterdir()] == ["followed-0000.safetensors.partial"]
    follower.add(0, 0, rows[:4], {"telco": again}, {})
    assert follower.close(0)
    (epoch,) = read_followed(tmp_path)
    assert torch.equal(epoch.embeddings["telco"], torch.cat([again, first]))
    assert [path.name for path in tmp_path.iterdir()] == ["followed-0000.safetensors"]
