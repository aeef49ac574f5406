"""How the Gaussian noise of a protection is set: by a cost, or by a multiple of what it hides."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from cutlayer.config import FrozenModel

_START_TEXT = "epsilon 8 and delta 1e-5 are a start"


class NoiseBudget(FrozenModel):
    """Clipping norm, and noise by epsilon and delta or by a noise multiplier; the settings that extend it say of what.

    Attributes:
        clip: C, the norm that what is clipped does not exceed.
        epsilon: Cost of all that the noise hides.
        delta: Probability with which that epsilon may not hold.
        noise_multiplier: Standard deviation of the noise over C or 2C, in place of epsilon and delta.
    """

    clip: float = Field(gt=0, strict=True)
    epsilon: float | None = Field(default=None, gt=0, strict=True, description=_START_TEXT)
    delta: float | None = Field(default=None, gt=0, lt=1, strict=True, description=_START_TEXT)
    noise_multiplier: float | None = Field(default=None, gt=0, strict=True)

    def _faults(self) -> Iterator[str]:
        given = [name for name in ("epsilon", "delta", "noise_multiplier") if getattr(self, name) is not None]
        if given not in (["epsilon", "delta"], ["noise_multiplier"]):
            got = " and ".join(given) or "none"
            yield f"either epsilon and delta or noise_multiplier, got {got}; {_START_TEXT}"
