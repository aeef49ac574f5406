"""A random sample of what was served, for the same attacks as on what was sent in training (`cutlayer audit --served`).

The rows are those with the smallest numbers under a keyed hash of their ids: of all rows that were ever asked for each
is as likely to be in the sample as any other, however often and in whatever order they are asked for. The hash is fast,
not cryptographic; the key is with the party that records, and nothing that it sends depends on it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cutlayer.data.ids import Digests
from cutlayer.durable import make_folder
from cutlayer.errors import DataError
from cutlayer.tensor_file import read_tensors, write_tensors

MAX_BYTES = 64 * 2**20
"""Maximum size of a sample; wide rows, such as images, are fewer."""
_LAST = 2**64 - 1
_ODD = np.array([0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB], dtype=np.uint64)
"""Multipliers of SplitMix64 (Steele et al. 2014)."""


@dataclass(frozen=True, eq=False)
class Served:
    """A sample as it was read.

    Attributes:
        ids: Digests of the ids, uint8 (n, 16), all different.
        embeddings: Embeddings as they crossed, float32 (n, width).
        codes: Encoded categories of the owner, int32 (n, c); no columns where another party recorded.
        numbers: Its encoded numbers, float32 (n, d).
    """

    ids: Digests
    embeddings: Tensor
    codes: Tensor
    numbers: Tensor


def sample_path(folder: Path, party: str, of: str) -> Path:
    """Where a party records the embeddings of a passive party, which may be itself."""
    return folder / "serving" / party / "sample" / f"{of}.safetensors"


class ServedSample:
    """Collects the sample of one passive party's embeddings.

    Args:
        path: Its file; what it holds of the same training is continued.
        training: Tag of the training's half.
        rows: Maximum number of rows.
    """

    def __init__(self, path: Path, training: str, rows: int) -> None:
        self.path, self._training, self._most = path, training, rows
        self._key = np.frombuffer(secrets.token_bytes(24), dtype=np.uint64).copy()
        self._rows: dict[int, dict[str, Tensor]] = {}
        self._bound = _LAST
        self._changed = False
        self._continue()

    def __len__(self) -> int:
        return len(self._rows)

    def add(
        self,
        ids: Digests,
        embeddings: Tensor,
        columns: Callable[[npt.NDArray[np.int64]], tuple[Tensor, Tensor]] | None = None,
    ) -> None:
        """Record those of some released rows that are in the sample.

        Args:
            ids: Digests of the ids, uint8 (n, 16).
            embeddings: What crossed, float32 (n, width).
            columns: The owner's encoded columns of some of the rows, by their index; `None` where it is another party.
        """
        hashes = self._hashes(ids)
        for index in np.flatnonzero(hashes <= np.uint64(self._bound)).tolist():
            hashed = int(hashes[index])
            if hashed not in self._rows and hashed <= self._bound:
                row = {"ids": torch.from_numpy(ids[index].copy()), "embeddings": embeddings[index].detach().clone()}
                if columns is not None:
                    codes, numbers = columns(np.array([index]))
                    row |= {"codes": codes[0].clone(), "numbers": numbers[0].clone()}
                self._insert(hashed, row)

    def write(self) -> None:
        """Write the sample, if it changed.

        Raises:
            OSError: the disk is full.
        """
        if not self._changed or not self._rows:
            return
        self._changed = False
        names = next(iter(self._rows.values()))
        # A copy of the rows first: more may be added by another thread while this one writes.
        rows = [*self._rows.values()]
        tensors = {name: torch.stack([row[name] for row in rows]) for name in names}
        make_folder(self.path.parent)
        write_tensors(self.path, tensors, {"training": self._training, "key": self._key.tobytes().hex()})

    def _insert(self, hashed: int, row: dict[str, Tensor]) -> None:
        most = min(self._most, max(1, MAX_BYTES // sum(tensor.nbytes for tensor in row.values())))
        self._rows[hashed] = row
        self._changed = True
        if len(self._rows) > most:
            del self._rows[max(self._rows)]
        if len(self._rows) == most:
            self._bound = max(self._rows)

    def _hashes(self, ids: Digests) -> npt.NDArray[np.uint64]:
        words = np.ascontiguousarray(ids).view(np.uint64).reshape(-1, 2)
        mixed = words[:, 0] ^ self._key[0]
        for part, odd in zip((words[:, 1] ^ self._key[1], self._key[2], np.uint64(0)), _ODD, strict=True):
            mixed = (mixed ^ (mixed >> np.uint64(30))) * odd + part
        hashes: npt.NDArray[np.uint64] = mixed ^ (mixed >> np.uint64(31))
        return hashes

    def _continue(self) -> None:
        """Continue the file, unless it is of another training, of another width, or damaged."""
        try:
            tensors, header = read_tensors(self.path)
            if header["training"] != self._training:
                return
            self._key = np.frombuffer(bytes.fromhex(header["key"]), dtype=np.uint64).copy()
        except (OSError, ValueError, KeyError):
            return
        ids = tensors["ids"].numpy()
        for index, hashed in enumerate(self._hashes(ids).tolist()):
            self._insert(hashed, {name: tensor[index].clone() for name, tensor in tensors.items()})
        self._changed = False


def read_sample(path: Path) -> Served:
    """Read a sample.

    Raises:
        DataError: it is missing or damaged.
    """
    try:
        tensors, _ = read_tensors(path)
        ids, embeddings = tensors["ids"].numpy(), tensors["embeddings"]
        empty: Mapping[str, Tensor] = {
            "codes": torch.zeros(len(ids), 0, dtype=torch.int32),
            "numbers": torch.zeros(len(ids), 0),
        }
        return Served(ids, embeddings, *({**empty, **tensors}[name] for name in ("codes", "numbers")))
    except (OSError, ValueError, KeyError) as damage:
        raise DataError(f"{path} is no readable sample of served rows ({damage}); remove it") from None
