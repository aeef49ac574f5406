"""Images as a column: an Arrow tensor per row, of bytes or of float32, and the scale of its channels."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field

from cutlayer.config import FrozenModel
from cutlayer.data.faults import fault

IMAGE = "image"
"""Name of the column of an array of images."""
MAX_CHANNELS = 16
_BLOCK_ROWS = 1024
_BRIGHTEST = {"uint8": 255.0, "float32": 1.0}

Array = npt.NDArray[Any]


class ImageSpec(FrozenModel):
    """The shape and the scale of a party's images.

    A pixel x of channel c becomes (x / brightest - mean[c]) / deviation[c]; brightest is 255 for bytes and 1 for
    float32.

    Attributes:
        channels: Number of channels of every image.
        height: Height of every image, in pixels.
        width: Width of every image, in pixels.
        dtype: Type that a pixel is stored as.
        mean: Mean of each channel over the training rows.
        deviation: Standard deviation of each channel over the training rows; 0 marks a channel that was constant there,
            which becomes 0.
    """

    channels: int = Field(ge=1, le=MAX_CHANNELS)
    height: int = Field(ge=1)
    width: int = Field(ge=1)
    dtype: Literal["uint8", "float32"]
    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height, width."""
        return self.channels, self.height, self.width

    @property
    def pixels(self) -> int:
        """Numbers per image."""
        return self.channels * self.height * self.width

    def affine(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Factor and offset by channel, (c,) each: a stored pixel x becomes factor * x + offset."""
        mean, deviation = np.array(self.mean), np.array(self.deviation)
        constant = deviation == 0
        width = np.where(constant, 1.0, deviation)
        factor = np.where(constant, 0.0, 1 / (_BRIGHTEST[self.dtype] * width))
        offset = np.where(constant, 0.0, -mean / width)
        return factor.astype(np.float32), offset.astype(np.float32)


class ImageEncoder(FrozenModel):
    """The fitted encoding of an image column."""

    kind: Literal["image"] = "image"
    name: str
    spec: ImageSpec

    @classmethod
    def fit(cls, name: str, images: Array, rows: npt.NDArray[np.int64]) -> ImageEncoder:
        """Fit the shape, and the scale of each channel.

        Args:
            name: Name of the column.
            images: uint8 or float32 (n, height, width, channels).
            rows: int64 (t,), the training rows, the only ones that are looked at.
        """
        _, height, width, channels = images.shape
        dtype: Literal["uint8", "float32"] = "uint8" if images.dtype == np.uint8 else "float32"
        mean, deviation = _moments(images, rows)
        scale = _BRIGHTEST[dtype]
        spec = ImageSpec(
            channels=channels,
            height=height,
            width=width,
            dtype=dtype,
            mean=tuple((mean / scale).tolist()),
            deviation=tuple((deviation / scale).tolist()),
        )
        return cls(name=name, spec=spec)

    def apply(self, images: Array, where: str) -> Array:
        """Channels first, as they are stored; the scale is applied when a batch is gathered.

        Args:
            images: Images of the shape and type that were fitted, (n, height, width, channels).
            where: Name of the data, for error messages.

        Returns:
            (n, channels, height, width), contiguous.

        Raises:
            DataError: Another shape or type.
        """
        spec = self.spec
        wanted = (spec.height, spec.width, spec.channels), spec.dtype
        got = images.shape[1:], str(images.dtype)
        if got != wanted:
            raise fault(where, f"images of shape {wanted[0]} in {wanted[1]}", f"{got[0]} in {got[1]}", "as in training")
        return np.array(images.transpose(0, 3, 1, 2), order="C")  # a copy: Arrow's memory is read-only


def image_column(array: Array, where: str) -> pa.FixedShapeTensorArray:
    """Images as an Arrow column.

    Args:
        array: (n, height, width) or (n, height, width, channels); whole numbers from 0 to 255, or floats of any scale.
        where: Name of the data, for error messages.

    Raises:
        DataError: Another shape or type, more than 16 channels, whole numbers outside 0..255, NaN or infinity.
    """
    if array.ndim not in (3, 4) or not all(array.shape[1:]):
        wanted = "images of shape (rows, height, width) or (rows, height, width, channels)"
        raise fault(where, wanted, f"shape {array.shape}")
    if array.ndim == 4 and array.shape[3] > MAX_CHANNELS:
        wanted = f"{MAX_CHANNELS} channels at most, on the last axis"
        raise fault(where, wanted, f"shape {array.shape}", "move the channels to the end")
    if np.issubdtype(array.dtype, np.floating):
        array = array.astype(np.float32, copy=False)
        if not np.isfinite(array).all():
            raise fault(where, "finite pixels", "NaN or infinity")
    elif np.issubdtype(array.dtype, np.integer) or array.dtype == np.bool_:
        if array.dtype != np.uint8 and array.size and (array.min() < 0 or array.max() > 255):
            raise fault(where, "whole pixels in 0..255", f"{array.min()}..{array.max()}", "or make them floats")
        array = array.astype(np.uint8, copy=False)
    else:
        raise fault(where, "images of numbers", f"{array.dtype}")
    return pa.FixedShapeTensorArray.from_numpy_ndarray(np.ascontiguousarray(array))


def is_image(kind: pa.DataType) -> bool:
    """Whether a column of this Arrow type holds images: tensors of two or three axes, of bytes or float32."""
    if not isinstance(kind, pa.FixedShapeTensorType):
        return False
    return kind.value_type in (pa.uint8(), pa.float32()) and len(kind.shape) in (2, 3)


def images_of(column: pa.ChunkedArray, name: str, where: str) -> Array:
    """The images of a column, (n, height, width, channels); without a copy if it is one chunk.

    Raises:
        DataError: An image is missing.
    """
    if column.null_count:
        raise fault(where, f"an image in every row of column {name!r}", f"none in {column.null_count} rows")
    whole = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    images: Array = whole.to_numpy_ndarray()
    return images if images.ndim == 4 else images[..., np.newaxis]


def _moments(images: Array, rows: npt.NDArray[np.int64]) -> tuple[Array, Array]:
    """Mean and deviation by channel, float64 (c,), over some rows; two passes, a block of rows at a time."""
    channels = images.shape[3]
    count = len(rows) * images.shape[1] * images.shape[2]
    if not count:
        return np.zeros(channels), np.ones(channels)
    blocks = [rows[start : start + _BLOCK_ROWS] for start in range(0, len(rows), _BLOCK_ROWS)]
    mean = sum(images[block].sum(axis=(0, 1, 2), dtype=np.float64) for block in blocks) / count
    squares = sum(((images[block] - mean) ** 2).sum(axis=(0, 1, 2)) for block in blocks)
    return mean, np.sqrt(squares / count)
