"""A NumPy archive as a table: its arrays are the columns, images among them."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cutlayer.config import TableConfig, near_miss
from cutlayer.data.faults import fault
from cutlayer.data.images import image_column
from cutlayer.data.partition import part_of
from cutlayer.data.sources.base import FileSource, Names, first_line
from cutlayer.data.sources.size_limit import SHARE, SizeLimit
from cutlayer.errors import DataError

Array = npt.NDArray[Any]


class NpzSource(FileSource):
    """A NumPy archive; only the arrays that the job names are read."""

    format = "npz"
    endings = (".npz",)
    failures = (zipfile.BadZipFile, zlib.error, OSError, EOFError, ValueError)

    def read_names(self) -> tuple[str, ...]:
        """Names of the columns that `config.arrays` makes of the archive.

        Raises:
            DataError: It is no archive, or does not hold an array that `config.arrays` names.
        """
        config, where = self.config, self.where
        if not zipfile.is_zipfile(config.path):
            raise fault(where, "an npz archive", "another kind of file", "np.savez(path, x=..., y=...) writes one")
        # All of it will be in memory; one that is not packed takes no more there than on disk.
        SizeLimit(where, self.most // SHARE + config.path.stat().st_size).add_archive(config.path)
        with np.load(config.path, allow_pickle=False) as archive:
            known = list(archive.files)
        for name in config.arrays:
            for array in _joined(config, name):
                if array not in known:
                    raise DataError(f"{where}: no array {array!r}{near_miss(array, known)}")
        return tuple(config.arrays)

    def read_pieces(self, names: list[str], size: int, as_text: Names, coded: Names) -> Iterator[pa.Table]:
        """Columns of these names in this order, all rows at once; no other array of the file is opened.

        Raises:
            DataError: An array holds objects, or has another number of axes than 1, 3 or 4; arrays that are joined
                differ in shape; columns differ in length; the part would halve an odd side.
        """
        where = self.where
        with np.load(self.config.path, allow_pickle=False) as archive:
            arrays = {name: _whole(archive, self.config, name, where) for name in names}
        rows = {name: len(array) for name, array in arrays.items()}
        if len(set(rows.values())) > 1:
            raise fault(where, "columns of one length", ", ".join(f"{name} {count:,}" for name, count in rows.items()))
        yield pa.table({name: _column(array, f"{where}: {name}") for name, array in arrays.items()})

    def unreadable(self, failure: Exception) -> DataError:
        """The error of an archive that cannot be read."""
        if "allow_pickle" in str(failure):
            remedy = "save numbers or text; a pickle could run any code"
            return fault(self.where, "arrays of numbers or text", "pickled objects", remedy)
        return fault(self.where, "a readable npz archive", first_line(failure), "write it again")


def _joined(config: TableConfig, name: str) -> tuple[str, ...]:
    arrays = config.arrays[name]
    return (arrays,) if isinstance(arrays, str) else arrays


def _whole(archive: Any, config: TableConfig, name: str, where: str) -> Array:
    parts = []
    for array in _joined(config, name):
        values: Array = archive[array]
        if values.ndim == 2 and values.shape[1] == 1:
            values = values[:, 0]
        if values.ndim not in (1, 3, 4):
            wanted = f"array {array!r} of shape (rows,), (rows, height, width) or (rows, height, width, channels)"
            raise fault(where, wanted, f"{values.shape}", "a table of numbers belongs in a CSV or Parquet file")
        parts.append(values if values.ndim == 1 else _part(values, config, f"{where}: {array}"))
    if len({(part.shape[1:], part.dtype) for part in parts}) > 1:
        shapes = ", ".join(f"{part.shape[1:]} {part.dtype}" for part in parts)
        raise fault(where, f"arrays of one shape and type to join into {name!r}", shapes)
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _part(images: Array, config: TableConfig, where: str) -> Array:
    try:
        return part_of(images, config.part)
    except DataError as failure:
        raise DataError(f"{where}: {failure}") from None


def _column(array: Array, where: str) -> pa.Array:
    return pa.array(array) if array.ndim == 1 else image_column(array, where)
