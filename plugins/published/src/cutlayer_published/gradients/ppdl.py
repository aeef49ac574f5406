"""PPDL: release a few noisy entries of the cut gradient, selected by a noisy threshold, and zeros elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from pydantic import Field

from cutlayer.config import FrozenModel
from cutlayer.kernels.noise.aes import keystream, standard_laplace
from cutlayer.lazy import Tensor, torch
from cutlayer.protections.contract.base import LabelProtection
from cutlayer.protections.contract.views import ActiveView
from cutlayer_published.gradients.sparse_vector import take_passing

_THRESHOLD_SHARE, _VALUE_SHARE = 8 / 9, 2 / 9
_MAX_WALK = 1 << 16


class PPDLConfig(FrozenModel):
    """Share of the entries that is released, and their noise.

    Attributes:
        theta: Share of a message's entries to release, 0 to 1; the published grids go from 0 to 0.75.
        epsilon: Budget of one message as its authors count it; the noise's base scale is 2 theta entries / epsilon.
        scale: Base scale of the noise itself, in place of that of `epsilon`; 0.0001 to 0.01 in the paper on departures.
        gamma: Bound on an entry: entries are clamped to [-gamma, gamma].
        tau: Size that an entry must reach, with noise, to be released; 0.0001, in the paper on departures 0.001.
    """

    theta: float = Field(ge=0, le=1, strict=True, description="the published grids go from 0 to 0.75")
    epsilon: float = Field(default=1.8, gt=0, strict=True, description="1.8 in the published code")
    scale: float | None = Field(default=None, gt=0, strict=True, description="0.0001 to 0.01 in the published grid")
    gamma: float = Field(default=0.001, gt=0, strict=True, description="0.001 in the published code")
    tau: float = Field(default=0.0001, ge=0, strict=True, description="0.0001 to 0.001 are published")


class PPDL(LabelProtection[PPDLConfig]):
    """Release at most theta of the entries, in random order, each noisy and clamped to gamma, and zeros elsewhere.

    With Lap(b) Laplace noise, s = 2 theta entries / epsilon, s1 = 9/8 s and s2 = 9/2 s: an entry passes where
    |entry clamped to gamma| + Lap(2 s1) >= tau + Lap(s1), whose right side is drawn anew after each pass, and is
    released as entry + Lap(s2), clamped to gamma. With `scale`, s1 = s2 = scale.

    At the published settings s is thousands of gammas: what is released is nearly always +-gamma with a random sign,
    correlating about 0.02 with the gradient, and which entries pass is nearly a coin flip. That is the method, and its
    poor utility in the published tables is real.

    Where it differs from the published code: when that has visited all entries before enough have passed, it leaves the
    rest *as they are*, in the clear, where zeros are sent here; and for a theta that comes to no entry it releases one,
    where none is released here. The entries are visited at once, not one by one.

    Reference: Shokri and Shmatikov, Privacy-preserving deep learning (CCS 2015), section 5, as applied to cut gradients
    by Fu et al., Label inference attacks against vertical federated learning (USENIX Security 2022).

    Guarantee: none, empirical. Its authors' epsilon is per entry and message, so a run's adds up over all of them.
    The sensitivity of 1 that it assumes of an entry is not shown.

    Advice: measured against model completion (docs/results/model-completion.md).
    """

    name = "ppdl"
    config = PPDLConfig
    reference = "Shokri and Shmatikov 2015 (CCS), section 5; Fu et al. 2022 (USENIX Security), possible defenses"
    start = PPDLConfig(theta=0.001, scale=1e-4, tau=1e-3, gamma=1e-3)
    rank = 20
    on_cpu = True
    excludes = frozenset({"max_norm", "marvell", "iso_noise", "noisy_gradient", "gradient_compression", "discrete_sgd"})
    no_guarantee = "its epsilon is per entry and message, under a sensitivity that is not shown"
    counters = ("entries", "entries_walked", "entries_released")

    def gradient_out(self, g: Tensor, party: str, view: ActiveView) -> Tensor:
        """Selectively release the cut gradient (n, width) of `party`."""
        self.count(entries=g.numel())
        sent = torch.zeros_like(g)
        count = int(self.settings.theta * g.numel())
        if count:
            key = self.context.noise.key(hook="ppdl", peer=party, step=view.step, content=g)
            self._release(g.contiguous().view(-1).numpy(), sent.view(-1).numpy(), count, key)
        return sent

    def _release(self, entries: npt.NDArray[np.float32], sent: npt.NDArray[np.float32], count: int, key: bytes) -> None:
        """Visit the entries in random order and write `count` of them, or all that pass, into `sent`."""
        settings, left = self.settings, count
        s1, s2 = self._scales(count)
        threshold = s1 * float(standard_laplace(key, b"first", (1,)))
        for number, walk in enumerate(_random_walks(len(entries), count, key)):
            own = entries[walk].astype(np.float64)
            noise = standard_laplace(key, b"walk %d" % number, (3, len(walk))).double().numpy()
            scores = np.minimum(np.abs(own), settings.gamma) + 2.0 * s1 * noise[0] - settings.tau
            taken = take_passing(scores, s1 * noise[1], threshold, left)
            sent[walk[taken]] = np.clip(own[taken] + s2 * noise[2][taken], -settings.gamma, settings.gamma)
            left -= len(taken)
            self.count(entries_released=len(taken), entries_walked=len(walk) if left else int(taken[-1]) + 1)
            if not left:
                return
            if len(taken):
                threshold = float(s1 * noise[1][taken[-1]])

    def _scales(self, count: int) -> tuple[float, float]:
        if self.settings.scale is not None:
            return self.settings.scale, self.settings.scale
        base = 2.0 * count / self.settings.epsilon
        return base / _THRESHOLD_SHARE, base / _VALUE_SHARE


def _random_walks(entries: int, wanted: int, key: bytes) -> Iterator[npt.NDArray[np.int64]]:
    """All positions in random order, a walk at a time; the walks grow, so that a short one costs little.

    While few positions have been visited, they are drawn with repetition and repeated ones left out; then the rest is
    shuffled, as the order of one random word each.
    """
    visited, first = np.zeros(entries, np.bool_), np.empty(entries, np.int32)
    left, length, number = entries, 3 * wanted + 64, 0
    while 4 * length < left:
        words = np.frombuffer(keystream(key, b"draw %d" % number, 8 * length), np.uint64)
        drawn = (words % np.uint64(entries)).astype(np.int64)
        drawn = drawn[~visited[drawn]]
        # Of equal positions the first is kept: it is written last, and so is the number that is read there.
        turns = np.arange(len(drawn), dtype=np.int32)
        first[drawn[::-1]] = turns[::-1]
        stretch = drawn[first[drawn] == turns]
        visited[stretch] = True
        yield stretch
        left, length, number = left - len(stretch), min(2 * length, _MAX_WALK), number + 1
    rest = np.flatnonzero(~visited)
    order = np.argsort(np.frombuffer(keystream(key, b"rest", 8 * left), np.uint64))
    for start in range(0, left, _MAX_WALK):
        yield rest[order[start : start + _MAX_WALK]]
