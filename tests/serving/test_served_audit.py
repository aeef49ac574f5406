"""The sample of served rows is uniform, bounded and private; the attacks of training read it."""

from __future__ import annotations

import asyncio
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from cutlayer.cli import app
from cutlayer.config.load import load_closed_job
from cutlayer.consent import allowed
from cutlayer.errors import RunFolderError
from cutlayer.jobs.audit import with_attacks
from cutlayer.training.folder import RunFolder
from cutlayer_serve.sample import ServedSample, read_sample, sample_path
from cutlayer_serve.served_audit import audit_served, reason_too_few
from cutlayer_serve.trained_party import TrainedParty
from tests.serving.runs import unserved
from tests.serving.world import ACTIVE, MISSING_AT_SHOP, world

CODES = torch.arange(100)[:, None]


def ids(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, 16), dtype=np.uint8)


def test_every_row_is_as_likely_however_often_it_is_asked_for(tmp_path: Path) -> None:
    asked, rows = ids(400), torch.arange(400.0)[:, None]
    taken = np.zeros(400)
    for number in range(60):
        sample = ServedSample(tmp_path / f"{number}.safetensors", "tag", 40)
        for _ in range(20):
            sample.add(asked[:1], rows[:1])  # one caller asks for its own row again and again
        for start in range(0, 400, 50):
            sample.add(asked[start : start + 50], rows[start : start + 50])
        sample.write()
        found = read_sample(sample.path)
        assert len(found.ids) == 40
        assert (asked[found.embeddings[:, 0].long().numpy()] == found.ids).all()
        taken[found.embeddings[:, 0].long().numpy()] += 1
    assert taken[:200].sum() == pytest.approx(1200, abs=150)  # six standard deviations
    assert taken[0] < 25


def test_a_sample_goes_on_after_a_restart_and_not_in_another_training(tmp_path: Path) -> None:
    path, asked = tmp_path / "s.safetensors", ids(100)
    whole, half = ServedSample(path, "tag", 30), ServedSample(tmp_path / "none", "tag", 30)
    whole.add(asked[:50], torch.zeros(50, 2))
    whole.write()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again = ServedSample(path, "tag", 30)
    again.add(asked, torch.ones(100, 2))
    again.write()
    first = {row.tobytes() for row in asked[:50]}
    found = read_sample(path)
    assert len(again) == 30
    # Under the same key, so that a row of the first half stays or leaves by its hash, and is not drawn again.
    assert all(
        bool(row.any()) != (own.tobytes() in first) for own, row in zip(found.ids, found.embeddings, strict=True)
    )
    assert len(ServedSample(path, "other", 30)) == 0
    assert len(half) == 0


def test_the_sample_is_the_rows_of_the_smallest_hashes_as_they_were_first_served(tmp_path: Path) -> None:
    """Against a slow reference: lookups of all sizes, ids that repeat within and between them."""
    draw, asked = np.random.default_rng(2), ids(300)
    sample = ServedSample(tmp_path / "s", "tag", 50)
    first: dict[int, float] = {}
    for number in range(120):
        chosen = draw.integers(0, 300 if number else 60, draw.integers(1, 90) if number else 99)
        sample.add(asked[chosen], torch.full((len(chosen), 1), float(number)), lambda rows: (CODES[rows], CODES[rows]))
        for row in chosen.tolist():
            first.setdefault(row, number)
    sample.write()
    wanted = sorted(first, key=lambda row: int(sample._hashes(asked[row : row + 1])[0]))[:50]
    found = read_sample(sample.path)
    assert [row.tobytes() for row in found.ids] == [asked[row].tobytes() for row in wanted]
    assert found.embeddings[:, 0].tolist() == [first[row] for row in wanted]
    assert len(sample) == 50


def test_wide_rows_are_bounded_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cutlayer_serve.sample.MAX_BYTES", 4_000)
    sample = ServedSample(tmp_path / "s", "tag", 4096)
    sample.add(ids(100), torch.zeros(100, 100))
    assert len(sample) == 4_000 // 416


@pytest.fixture(scope="module", autouse=True)
def _consent() -> Iterator[None]:
    """The tables of these runs are this user's own."""
    with allowed(paths=["/"]):
        yield


@pytest.fixture(scope="module")
def served_run(plain: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has been served, with its samples."""
    run = unserved(plain, tmp_path_factory.mktemp("served") / "run")

    async def serve() -> None:
        async with world(run) as served:
            for start in range(0, MISSING_AT_SHOP + 6, 52):
                await served.predict(range(start, start + 52))

    asyncio.run(serve())
    return run


def test_columns_are_read_from_what_was_served_without_a_known_row(served_run: Path) -> None:
    named = ("lattice", "two_valued", "components", "naming")
    job = load_closed_job(served_run / "job.yaml")
    found = audit_served(RunFolder.open(served_run), with_attacks(job, named))
    read = {(result.party, result.attack): result for result in found.features}
    assert read.keys() == {(party, attack) for party in job.passives for attack in named}
    for (party, attack), result in read.items():
        recorded = found.rows[f"{party}, recorded by itself"]
        knows = recorded // 2 if attack == "naming" else 0
        assert (result.known, result.rows) == (knows, recorded - knows)
        assert result.columns
    assert not {skipped.label for skipped in found.skipped} & {*named}
    # A catalogue reads columns of a party that releases once alone, as in the audit of a training.
    assert not audit_served(RunFolder.open(served_run), with_attacks(job, ("spectral",))).features


def test_the_attacks_of_training_read_what_was_served(served_run: Path) -> None:
    job = with_attacks(load_closed_job(served_run / "job.yaml"), ("inversion", "spectral", "mixture", "similarity"))
    found = audit_served(RunFolder.open(served_run), job)
    assert found.rows["shop, recorded by itself"] == MISSING_AT_SHOP
    assert found.rows["telco, recorded by bank"] == MISSING_AT_SHOP + 6
    assert {leak.attack for leak in found.leaks} >= {"spectral", "similarity"}
    assert {result.party for result in found.features} == {"telco", "shop"}
    assert all((result.value or 0) > (result.baseline or 0) for result in found.features)
    assert {baseline.party for baseline in found.baselines} == {"telco", "shop"}


def test_each_party_records_what_it_sent_and_no_other_party_s_columns(served_run: Path) -> None:
    own = read_sample(sample_path(served_run, "telco", "telco"))
    received = read_sample(sample_path(served_run, ACTIVE, "telco"))
    assert own.numbers.shape == (MISSING_AT_SHOP + 6, 2)
    assert received.numbers.shape[1] == received.codes.shape[1] == 0
    sent = {row.tobytes(): embedding for row, embedding in zip(own.ids, own.embeddings, strict=True)}
    assert all(
        torch.equal(sent[row.tobytes()], embedding)
        for row, embedding in zip(received.ids, received.embeddings, strict=True)
    )


def test_a_party_audits_its_own_folder(served_run: Path, tmp_path: Path) -> None:
    """What a passive party has after serving: nothing of the others is needed."""
    alone = tmp_path / "telco"
    shutil.copytree(served_run, alone)
    for other in (ACTIVE, "shop"):
        for folder in ("serving", "data", "checkpoint", "transcript"):
            shutil.rmtree(alone / folder / other, ignore_errors=True)
    job = with_attacks(load_closed_job(alone / "job.yaml"), ("inversion",))
    assert {result.party for result in audit_served(RunFolder.open(alone), job).features} == {"telco"}


def test_the_verb_shows_it_and_gates(served_run: Path) -> None:
    call = CliRunner().invoke
    given = ["audit", str(served_run), "--served", "--attack", "spectral"]
    shown = call(app, given)
    assert shown.exit_code == 0, shown.output
    assert "Label leakage from served embeddings" in shown.output
    assert call(app, [*given, "--fail-above", "0.501"]).exit_code == 1
    assert call(app, [*given, "--json"]).output.startswith("{")
    assert (served_run / "serving" / "audit.json").exists()


def test_without_samples_there_is_an_error(run: Path) -> None:

    async def serve() -> None:
        async with world(run, (), sample_rows=0) as served:
            await served.predict([1])

    asyncio.run(serve())
    assert TrainedParty.open(run, ACTIVE).folder.path == run
    with pytest.raises(RunFolderError, match="sample_rows"):
        audit_served(RunFolder.open(run), load_closed_job(run / "job.yaml"))


@pytest.mark.parametrize(
    ("truth", "words"),
    [
        (torch.tensor([0, 1, 0]), "got 3, 1 of the second class"),
        (torch.tensor([0] * 30), "got 30, 0 of the second class"),
        (torch.tensor([0] * 26 + [1] * 4), "got 30, 4 of the second class"),
        (torch.tensor([0] * 25 + [1] * 5), ""),
        (torch.tensor([2] * 15 + [1] * 15), ""),
        (torch.arange(19.0), "got 19; serve"),
        (torch.arange(20.0), ""),
    ],
)
def test_few_served_rows_have_no_leak(truth: torch.Tensor, words: str) -> None:
    """Of three rows, two of the attacks read every label by chance."""
    found = reason_too_few(truth)
    assert (words in found) if words else not found
