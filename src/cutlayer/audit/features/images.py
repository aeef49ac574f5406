"""Rebuilt images against the true ones: how near each is, and the best, the median and the worst to look at."""

from __future__ import annotations

import base64

import torch
from torch import Tensor

from cutlayer.data.encoded import ColumnSpec
from cutlayer.errors import DataError
from cutlayer.kernels.statistics.ssim import WINDOW, psnr, ssim
from cutlayer.results.features import ImagePair

MAX_DECIBELS = 100.0
_ROWS_AT_A_TIME = 256


class ImagePairs:
    """The images of some rows, and what an attack made of them.

    Pixels are compared on the scale 0 to 1 that they are stored on; floats beyond it are scaled into it by the least
    and the largest true pixel. Rebuilt pixels beyond it are clipped, as a viewer would.

    Args:
        columns: Columns of the party; one is an image.
        numbers: True encoded numbers, float32 (n, d), pixels last.
        rebuilt: Encoded numbers as rebuilt, laid out alike; further columns are ignored.

    Raises:
        DataError: There is no image among the columns.
    """

    def __init__(self, columns: ColumnSpec, numbers: Tensor, rebuilt: Tensor) -> None:
        if columns.image is None:
            raise DataError.expected("an image column", "none")
        self.columns = columns
        self.spec = columns.image
        truth = self._stored(numbers)
        low, high = min(0.0, float(truth.min())), max(1.0, float(truth.max()))
        self.truth = (truth - low) / (high - low)
        self.rebuilt = ((self._stored(rebuilt) - low) / (high - low)).clamp(0, 1)
        self.psnr = psnr(self.truth, self.rebuilt).clamp_max(MAX_DECIBELS)
        pairs = zip(torch.split(self.truth, _ROWS_AT_A_TIME), torch.split(self.rebuilt, _ROWS_AT_A_TIME), strict=True)
        large = min(self.spec.height, self.spec.width) >= WINDOW
        self.ssim = torch.cat([ssim(*pair) for pair in pairs]) if large else None

    def metrics(self) -> dict[str, float]:
        """Mean PSNR and SSIM over the images."""
        psnr_alone = {"psnr": float(self.psnr.mean())}
        return psnr_alone if self.ssim is None else {**psnr_alone, "ssim": float(self.ssim.mean())}

    def pictures(self) -> tuple[ImagePair, ...]:
        """The images rebuilt best, in the median and worst, by PSNR; none unless they are grey or in three colours."""
        if self.spec.channels not in (1, 3):
            return ()
        order = self.psnr.argsort(descending=True, stable=True).tolist()
        chosen = (("best", order[0]), ("median", order[len(order) // 2]), ("worst", order[-1]))
        return tuple(
            ImagePair(
                title=title,
                psnr=float(self.psnr[row]),
                ssim=None if self.ssim is None else float(self.ssim[row]),
                shape=self.spec.shape,
                truth=_base64(self.truth[row]),
                rebuilt=_base64(self.rebuilt[row]),
            )
            for title, row in chosen
        )

    def _stored(self, encoded: Tensor) -> Tensor:
        """The images (n, channels, height, width) within encoded rows, on the scale that they are stored on."""
        scaled = encoded[:, self.columns.numeric : self.columns.numeric + self.spec.pixels]
        mean, deviation = (torch.tensor(part).reshape(-1, 1, 1) for part in (self.spec.mean, self.spec.deviation))
        return scaled.reshape(-1, *self.spec.shape) * deviation + mean


def _base64(pixels: Tensor) -> str:
    return base64.b64encode((pixels * 255).round().to(torch.uint8).numpy().tobytes()).decode()
