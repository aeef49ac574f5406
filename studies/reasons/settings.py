"""Groups and settings of the study of reasons: the jobs of other studies, each with one thing changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from cutlayer.config import Job, validated
from studies.adaptive_embedding.protection import ADAPTIVE
from studies.clip_bound.settings import FUZZIFIER, THRESHOLD
from studies.datasets import avazu, criteo, with_audit, with_epochs, with_linear_top, with_more_steps, with_positives
from studies.departures.claims import MULTI_HEAD, rate_setting
from studies.departures.study import IMAGES as DEPARTED
from studies.departures.study import variant
from studies.feature_privacy.settings import ADJUST, DATA_SETS, FULL, VANILLA
from studies.forward_leakage.study import BALANCED_EPOCHS, SHARES, dcor_settings
from studies.gradient_leakage.study import noise_settings
from studies.image_halves import SGD, TOP, ImageHalves
from studies.model_completion.study import IMAGES
from studies.model_completion.weights import weight_settings
from studies.results import UNDEFENDED
from studies.trials import Trial

HALVES: ImageHalves = IMAGES[0]
"""Halves of MNIST as in the study of model completion."""
BALANCED = SHARES[-1]
HELD_OUT = ("Avazu", "Criteo", f"Criteo, {BALANCED:.0%} positives")
"""Groups whose embeddings of held-out rows are attacked too."""
LAST = "undefended, last epoch kept"
"""Setting of the last of these groups, whose published leak is of a later epoch than the weights that are kept."""
MODELS = (*((group, UNDEFENDED) for group in HELD_OUT), (HELD_OUT[2], LAST))
"""Conditions whose models are attacked."""
STEPS, SHALLOW = "Avazu, batch 512", "Avazu, batch 512, 1 top layer"
"""Groups with twelve times the optimiser steps."""
STEPS_BATCH, STEPS_EPOCHS = 512, 19
"""1,691 steps, where batch 4096 and 12 epochs make 144."""
ALPHAS = (0.03, 0.1)
"""Weights of distance correlation with these steps: that of table 2, and one that costs more."""
NOISE = ("sum_kl 0.16", "sum_kl 0.01")
LAMS = (0.01, 0.03, 0.3)
"""Weights of DIMIP at which the completed models of the study of model completion get less."""
MEMBERS = DATA_SETS[-1]
"""Halves of CIFAR-10 as in the study of private embeddings, where they have 8,000 rows."""
FEWER, FEWER_ROWS = f"{MEMBERS.group}, fewer rows", (4_000, 2_000)
"""Group and numbers of rows whose members are recognised."""
ADJUSTED = next(data for data in DATA_SETS if data.group == "MNIST halves")
"""Halves of MNIST as in the study of private embeddings."""
MASKED = f"{ADJUSTED.group}, masked"
"""Group whose confidence mask leaves rows out, as in the study of the bound C."""
LEFT: ImageHalves = replace(DEPARTED[-1], group=f"{DEPARTED[-1].group}, by SGD", optimizer=SGD)
"""Halves of CIFAR-100 as in the study of departures, with the optimiser of the paper."""
LEFT_SETTINGS = (rate_setting(0.3), MULTI_HEAD)
SPECTRAL = ("spectral",)
Privacy = Mapping[str, Any]


def trials_of(data: Path, seeds: int) -> Iterator[Trial]:
    """All trainings of the study, the seeds outermost.

    Args:
        data: Folder of data sets.
        seeds: Number of seeds.
    """
    tables, images = HALVES.tables(data), MEMBERS.read(data)
    adjusted, left = ADJUSTED.read(data), LEFT.tables(data)
    for seed in range(1, seeds + 1):
        yield from _held_out(data, seed)
        for group, settings in more_steps().items():
            for setting, privacy in settings.items():
                attacked = {"layers": False} if "dcor" in privacy else {"every": "never"}
                job = with_audit(with_steps(avazu(data, seed, privacy, SPECTRAL)), **attacked)
                yield Trial(group, setting, seed, with_linear_top(job) if group == SHALLOW else job)
        for setting, privacy in completion().items():
            compare = ("alone",) if setting == UNDEFENDED else ()
            yield Trial(HALVES.group, setting, seed, HALVES.job(seed, privacy, compare=compare, keep="last"), tables)
        for rows in FEWER_ROWS:
            first = {name: table.slice(0, rows) for name, table in images.items()}
            yield Trial(FEWER, rows_setting(rows), seed, _attacked(MEMBERS.job(FULL, seed), "membership"), first)
        for setting in (VANILLA, ADJUST):
            yield Trial(MASKED, setting, seed, masked(seed, setting), adjusted)
        for setting in LEFT_SETTINGS:
            privacy, top, _ = variant(LEFT.group, setting, TOP)
            yield Trial(LEFT.group, setting, seed, LEFT.job(seed, privacy, top=top), left)


def masked(seed: int, setting: str) -> Job:
    """The job of private embeddings on MNIST without attacks, whose adjusting leaves out rows of no clear cluster.

    Args:
        seed: Seed of the job.
        setting: `VANILLA` or `ADJUST`.
    """
    raw = _attacked(ADJUSTED.job(setting, seed)).model_dump()
    for party in ADJUSTED.parties if setting == ADJUST else ():
        noise = raw["parties"][party]["privacy"][ADAPTIVE]
        noise["adjust"] |= {"fuzzifier": FUZZIFIER, "threshold": THRESHOLD}
    return validated(Job, raw, "study")


def rows_setting(rows: int) -> str:
    """Name of the setting with so many rows."""
    return f"{FULL}, {rows:,} rows"


def _attacked(job: Job, *attacks: str) -> Job:
    """The job with these attacks on the passive parties alone."""
    raw = job.model_dump()
    for party in job.passives:
        raw["parties"][party]["audit"]["attacks"] = attacks
    return validated(Job, raw, "study")


def _held_out(data: Path, seed: int) -> Iterator[Trial]:
    """Undefended trainings of the study of embeddings, without its audit: the attack is repeated on their models."""
    whole = criteo(data, seed, {}, ())
    balanced = with_audit(with_epochs(whole, BALANCED_EPOCHS), every="never")
    yield Trial("Avazu", UNDEFENDED, seed, with_audit(avazu(data, seed, {}, ()), every="never"))
    yield Trial("Criteo", UNDEFENDED, seed, with_audit(whole, every="never"))
    tables = with_positives(whole, BALANCED, seed)
    yield Trial(HELD_OUT[2], UNDEFENDED, seed, balanced, tables)
    last = balanced.model_copy(update={"train": balanced.train.model_copy(update={"keep": "last"})})
    yield Trial(HELD_OUT[2], LAST, seed, last, tables)


def more_steps() -> dict[str, dict[str, Privacy]]:
    """Settings of the groups with more steps."""
    noise = noise_settings()
    term = dcor_settings(ALPHAS)
    return {STEPS: {UNDEFENDED: {}, **{name: noise[name] for name in NOISE}, **term}, SHALLOW: {UNDEFENDED: {}, **term}}


def completion() -> dict[str, Privacy]:
    """Settings whose models are completed by the plain attacker too."""
    return weight_settings(LAMS)


def with_steps(job: Job) -> Job:
    """A job of Avazu with twelve times the steps, at Adam 1e-4."""
    update = {"epochs": STEPS_EPOCHS, "batch_size": STEPS_BATCH}
    more = with_more_steps(job)
    return more.model_copy(update={"train": more.train.model_copy(update=update)})
