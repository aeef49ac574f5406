"""Models whose layers compute in mixed precision, and whose results are float32 all the same."""

from __future__ import annotations

from typing import Any, TypeVar, cast

from cutlayer.config.device import Precision
from cutlayer.lazy import Module, Tensor, torch

M = TypeVar("M", bound="PreciseModel")


class PreciseModel(Module):
    """A model that computes in one of two precisions, wherever it is called: in training, evaluation, audit or serving.

    Under `bf16` PyTorch's autocast has matrix products and convolutions in bfloat16, and what needs it in float32;
    weights and results are float32. What crosses, what is clipped and what noise is added to is therefore a function of
    float32 numbers in both precisions, and no guarantee of a protection depends on which of them it is.

    Attributes:
        precision: `float32` leaves the computation as it is, to the bit.
    """

    precision: Precision = "float32"

    def __call__(self, *args: Any, **kwargs: Any) -> Tensor:
        """Call the model; its result is float32."""
        if self.precision == "float32":
            return cast("Tensor", super().__call__(*args, **kwargs))
        # Without the cache of converted weights: a call uses each once, and row gradients call the model with others.
        with torch.autocast(_device_type(*args), dtype=torch.bfloat16, cache_enabled=False):
            result: Tensor = super().__call__(*args, **kwargs)
        return result.float() if isinstance(result, Tensor) else result


def at_precision(model: M, precision: Precision) -> M:
    """Set the precision of a model and of the models that it is made of, and return it."""
    for module in model.modules():
        if isinstance(module, PreciseModel):
            module.precision = precision
    return model


def _device_type(*args: Any) -> str:
    """Type of the device that the first tensor among the arguments, or in a mapping among them, is on."""
    for value in args:
        for tensor in value.values() if isinstance(value, dict) else (value,):
            if isinstance(tensor, Tensor):
                return tensor.device.type
    return "cpu"
