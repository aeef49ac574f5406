"""The benchmark of label defences reads an undefended run whole, and the labels of none that were permuted."""

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import pytest
import torch
from pyarrow import parquet

from benchmarks import (
    adult,
    averaged_noise,
    collusion,
    label_defences,
    label_embeddings,
    other_defences,
    rare_positives,
    release_attacks,
)
from cutlayer.config import Job, validated
from studies.datasets import ADULT_TABLE


@pytest.fixture
def audits_with(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Has a benchmark train on the first rows of its table, and audit with the attacks that its test is about.

    The whole catalogue on all rows takes half a minute for each setting.
    """

    def patch(benchmark: ModuleType, *attacks: str, rows: int = 1500) -> None:
        name = "measured" if hasattr(benchmark, "measured") else "audited"
        whole_audit = getattr(benchmark, name)

        def briefly(job: Job, key_name: str, tables: Mapping[str, Any] | None = None) -> Any:
            raw = job.model_dump()
            raw["parties"][adult.ACTIVE]["audit"]["attacks"] = attacks
            whole = tables or dict.fromkeys(job.parties, parquet.read_table(ADULT_TABLE))
            few = {name: table.slice(0, rows) for name, table in whole.items()}
            return whole_audit(validated(Job, raw, "the benchmark's job"), key_name, few)

        monkeypatch.setattr(benchmark, name, briefly)

    return patch


def test_an_undefended_run_is_read_whole(monkeypatch):
    short = adult.example_job()
    short = short.model_copy(update={"train": short.train.model_copy(update={"epochs": 2})})
    monkeypatch.setattr(adult, "example_job", lambda: short)
    few, whole = parquet.read_table(ADULT_TABLE).slice(0, 4000), adult.open_table
    monkeypatch.setattr(adult, "open_table", lambda job, name, _: whole(job, name, dict.fromkeys(job.parties, few)))
    monkeypatch.setattr(label_defences, "SETTINGS", {"undefended": {}})
    (read,) = label_defences.label_defences(1).settings
    assert read.test_auc > 0.8
    assert read.leaks["joint"] > 0.99
    assert read.leaks["bilinear"] > 0.99
    assert read.known_half > 0.99


def test_messages_without_a_signal_are_at_chance():
    draw = torch.Generator().manual_seed(0)
    labels = (torch.rand(4000, generator=draw) < 0.3).long()
    batches = [list(torch.randperm(4000, generator=draw).split(500)) for _ in range(3)]
    g, e = (torch.randn(3, 4000, 8, generator=draw) for _ in range(2))
    of = release_attacks.Releases(g, e, batches)
    read = release_attacks.without_labels(of, labels)
    assert all(0.5 <= value < 0.54 for value in read.values())
    assert release_attacks.leak(release_attacks.known_half(of, labels), labels[1::2]) < 0.55
    assert release_attacks.leak(labels + 0.1 * torch.rand(4000), labels) == 1.0


def test_embeddings_that_hide_a_label_in_a_direction_of_little_variance_are_read():
    draw = torch.Generator().manual_seed(0)
    labels = (torch.rand(1200, generator=draw) < 0.3).long()
    e = torch.randn(1200, 6, generator=draw, dtype=torch.float64) * torch.tensor([9.0, 3.0, 1.0, 1.0, 1.0, 1e-3])
    assert max(label_embeddings.embedding_leaks(e, labels).values()) < 0.55
    e[:, 5] += 3e-3 * labels
    read = label_embeddings.embedding_leaks(e @ torch.linalg.qr(torch.randn(6, 6, generator=draw).double()).Q, labels)
    assert min(read[name] for name in ("best_direction", "probe_200", "probe_half")) > 0.9
    assert read["probe_20"] > 0.75


def test_parties_that_pool_noisy_gradients_read_more_than_each_alone(monkeypatch, audits_with):
    audits_with(collusion, "mixture")
    monkeypatch.setattr(collusion, "SETTINGS", {"iso_noise 5": {"iso_noise": {"ratio": 5.0}}})
    read = {(each.attacker, each.message): each for each in collusion.collusion(1).leaks}
    alone = [read[party, "gradient"].leak for party in ("census_office", "employer")]
    assert read["census_office and employer together", "gradient"].leak > max(alone) + 0.01


def test_noise_that_averages_out_is_read_by_the_mean_of_the_epochs(monkeypatch, audits_with):
    audits_with(averaged_noise, "mean_length", "mixture", "directions")
    monkeypatch.setattr(averaged_noise, "EPOCHS", 3)
    income = {"income": ("income", "binary", {"gradient_compression": {"keep": 0.004}})}
    monkeypatch.setattr(averaged_noise, "SETTINGS", income)
    read = averaged_noise.averaged_noise(1).parties
    assert [part.party for part in read] == ["census_office", "employer"]
    assert all(part.averaged > 0.65 for part in read)
    assert all(0.7 < part.own_columns < 0.95 for part in read)


def test_stretched_rows_are_read_by_co_training(monkeypatch, audits_with):
    audits_with(other_defences, "co_training", "few_labels", "mixture", "directions", rows=4000)
    monkeypatch.setattr(other_defences, "EPOCHS", 2)
    monkeypatch.setattr(other_defences, "SETTINGS", {"income": other_defences.SETTINGS["income, max_norm"]})
    parties = other_defences.other_defences(1).parties
    assert [part.party for part in parties] == ["census_office", "employer"]
    assert all(0.6 < part.added <= part.now for part in parties)
    assert all(part.unlabelled <= part.before <= part.now for part in parties)
    assert all(part.chance < 0.53 for part in parties)


def test_sizes_of_messages_are_read_where_few_rows_are_positive(monkeypatch, audits_with):
    audits_with(rare_positives, "message_size", "spectral", "directions", rows=4000)
    noise = {form: {"iso_noise": {"ratio": 25.0, "form": form}} for form in ("paper", "past")}
    settings = {form: rare_positives.Setting(privacy, 32, 0.02) for form, privacy in noise.items()}
    monkeypatch.setattr(rare_positives, "EPOCHS", 2)
    monkeypatch.setattr(rare_positives, "SETTINGS", settings)
    parties = rare_positives.rare_positives(1).parties
    assert [part.party for part in parties] == 2 * ["census_office", "employer"]
    assert all(part.sizes > 0.8 for part in parties[:2])
    assert all(part.sizes < 0.65 for part in parties[2:])  # the strongest of several scores, of 160 positives
    assert all(part.others > 0.5 and part.chance < 0.6 and part.test_auc > 0.5 for part in parties)


def test_positives_are_left_out_to_a_share():
    table = rare_positives.thinned(0.02)
    positive = sum(value == rare_positives.POSITIVE for value in table.column(rare_positives.LABEL).to_pylist())
    assert round(positive / len(table), 4) == 0.02
    assert len(rare_positives.thinned(0.24)) == 48_842
