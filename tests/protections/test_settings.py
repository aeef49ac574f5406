"""The range of every setting, at its ends, and its default; no setting takes a text for a number."""

from __future__ import annotations

import math
import typing
from typing import Annotated, Any

import pytest
from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from cutlayer.protections import REGISTRY
from cutlayer_published.gradients.discrete_sgd import DiscreteSGD
from cutlayer_published.gradients.gradient_compression import GradientCompression
from cutlayer_published.gradients.noisy_gradient import NoisyGradient
from cutlayer_published.gradients.ppdl import PPDL

ABOVE_0, BELOW_1 = math.ulp(0.0), math.nextafter(1.0, 0.0)
# setting: values at the ends that are accepted, values just outside that are refused
RANGES = {
    "dcor.alpha": ([ABOVE_0], [0.0]),
    "dcor.floor": ([0.0], [-ABOVE_0]),
    "dcor.start": ([0.0], [-ABOVE_0]),
    "dcor.ramp": ([0.0], [-ABOVE_0]),
    "dimip.lam": ([0.0, 1.0], [-ABOVE_0, math.nextafter(1.0, 2.0)]),
    "dimip.predictor_steps": ([1], [0]),
    "dimip.hidden": ([1, 65_536], [0, 65_537]),
    "dimip.lr": ([ABOVE_0], [0.0]),
    "discrete_sgd.levels": ([1, 65_536], [0, 65_537]),
    "discrete_sgd.bound": ([ABOVE_0], [0.0]),
    "dp_bottom.epsilon": ([ABOVE_0], [0.0]),
    "dp_bottom.delta": ([ABOVE_0, BELOW_1], [0.0, 1.0]),
    "dp_bottom.noise_multiplier": ([ABOVE_0], [0.0]),
    "dp_embedding.epsilon": ([ABOVE_0], [0.0]),
    "dp_embedding.delta": ([ABOVE_0, BELOW_1], [0.0, 1.0]),
    "dp_embedding.noise_multiplier": ([ABOVE_0], [0.0]),
    "gradient_compression.keep": ([0.0, 1.0], [-ABOVE_0, math.nextafter(1.0, 2.0)]),
    "iso_noise.ratio": ([ABOVE_0], [0.0]),
    "label_dp.eps": ([0.0], [-ABOVE_0]),
    "marvell.sum_kl": ([ABOVE_0], [0.0]),
    "marvell.s": ([ABOVE_0], [0.0]),
    "nopeek.alpha": ([ABOVE_0], [0.0]),
    "noisy_gradient.scale": ([ABOVE_0], [0.0]),
    "party_dropout.rate": ([0.0, BELOW_1], [-ABOVE_0, 1.0]),
    "ppdl.theta": ([0.0, 1.0], [-ABOVE_0, math.nextafter(1.0, 2.0)]),
    "ppdl.epsilon": ([ABOVE_0], [0.0]),
    "ppdl.scale": ([ABOVE_0], [0.0]),
    "ppdl.gamma": ([ABOVE_0], [0.0]),
    "ppdl.tau": ([0.0], [-ABOVE_0]),
}
# Defaults that a paper, its code or a measurement set: a run that names no value has these.
DEFAULTS = {
    "dcor.floor": 0.05,
    "dcor.start": 0.0,
    "dcor.ramp": 0.0,
    "dimip.random_labels": True,
    "dimip.single_pass": False,
    "dimip.predictor_steps": 1,
    "dimip.hidden": 64,
    "dimip.lr": 0.01,
    "ppdl.epsilon": 1.8,
    "ppdl.gamma": 0.001,
    "ppdl.tau": 0.0001,
}


def settings() -> dict[str, FieldInfo]:
    plugins = (DiscreteSGD, GradientCompression, NoisyGradient, PPDL)
    configs = {kind.name: kind.config for kind in (*REGISTRY.values(), *plugins)}
    return {f"{name}.{key}": field for name, config in configs.items() for key, field in config.model_fields.items()}


def validate(field: FieldInfo, value: Any) -> Any:
    return TypeAdapter(Annotated[field.annotation, field]).validate_python(value)


@pytest.mark.parametrize("setting", sorted(RANGES))
def test_a_range_ends_where_it_says(setting):
    accepted, refused = RANGES[setting]
    field = settings()[setting]
    for value in accepted:
        assert validate(field, value) == value
    for value in refused:
        with pytest.raises(ValidationError):
            validate(field, value)


def numbers() -> list[str]:
    found = settings()
    plain = {int, float, bool}
    return sorted(
        name for name, field in found.items() if plain & {field.annotation, *typing.get_args(field.annotation)}
    )


@pytest.mark.parametrize("setting", numbers())
def test_a_text_is_no_number(setting):
    for text in ("1", "0.5", "true"):
        with pytest.raises(ValidationError):
            validate(settings()[setting], text)


@pytest.mark.parametrize("setting", sorted(DEFAULTS))
def test_a_default_is_the_published_one(setting):
    assert settings()[setting].default == DEFAULTS[setting]
