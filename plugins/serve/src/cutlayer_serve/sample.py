"""A random sample of what was served, for the same attacks as on what was sent in training (`cutlayer audit --served`).

The rows are those with the smallest numbers under a keyed hash of their ids: of all rows that were ever asked for each
is as likely to be in the sample as any other, however often and in whatever order they are asked for. The hash is fast,
not cryptographic; the key is with the party that records, and nothing that it sends depends on it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cutlayer.data.ids import Digests
from cutlayer.errors import DataError
from cutlayer.kernels.rows.word_hash import hashed_words
from cutlayer.storage.durable import make_folder
from cutlayer.storage.tensor_file import read_tensors, write_tensors

MAX_BYTES = 64 * 2**20
"""Maximum size of a sample; wide rows, such as images, are fewer."""
_MAX_HASH = 2**64 - 1


@dataclass(frozen=True, eq=False)
class ServedRows:
    """A sample as it was read.

    Attributes:
        ids: Digests of the ids, uint8 (n, 16), all different.
        embeddings: Embeddings as they crossed, float32 (n, width).
        codes: Encoded categories of the owner, int32 (n, c); no columns where another party recorded.
        numbers: Encoded numbers of the owner, float32 (n, d); no columns where another party recorded.
    """

    ids: Digests
    embeddings: Tensor
    codes: Tensor
    numbers: Tensor


def sample_path(folder: Path, party: str, of: str) -> Path:
    """Where a party records the embeddings of a passive party, which may be itself."""
    return folder / "serving" / party / "sample" / f"{of}.safetensors"


@dataclass(frozen=True, eq=False)
class _RecordedRows:
    """Recorded rows.

    Attributes:
        hashes: Keyed hashes of their ids, uint64 (n,).
        tensors: Ids, embeddings and columns by name, (n, ...).
    """

    hashes: npt.NDArray[np.uint64]
    tensors: Mapping[str, Tensor]

    def __len__(self) -> int:
        return len(self.hashes)

    @property
    def max_rows(self) -> int:
        """Number of such rows that `MAX_BYTES` has room for, at least 1."""
        return max(1, MAX_BYTES // sum(tensor[0].nbytes for tensor in self.tensors.values()))

    def has(self, hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        """Which of some hashes (m,) are among the rows', which are sorted."""
        if not len(self):
            return np.zeros(len(hashes), dtype=bool)
        indices = np.minimum(np.searchsorted(self.hashes, hashes), len(self) - 1)
        present: npt.NDArray[np.bool_] = self.hashes[indices] == hashes
        return present


class ServedSample:
    """Collects the sample of one passive party's embeddings.

    Rows wait unsorted until they are a quarter of the sample, so that a lookup of thousands of rows costs little more
    than the hashes of their ids.

    Args:
        path: File of the sample; a sample of the same training in it is continued.
        training: Tag of the party's part of the training.
        rows: Maximum number of rows.
    """

    def __init__(self, path: Path, training: str, rows: int) -> None:
        self.path, self._training, self._max_rows = path, training, rows
        self._key = np.frombuffer(secrets.token_bytes(16), dtype=np.uint64).copy()
        # The sample in the order of its hashes, then rows that wait; replaced as a whole, as another thread reads it.
        self._parts: tuple[_RecordedRows, ...] = ()
        self._waiting = 0
        self._bound = _MAX_HASH
        self._changed = False
        self._continue()

    def __len__(self) -> int:
        self._merge()
        return sum(len(part) for part in self._parts)

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
        chosen = np.flatnonzero(hashes <= np.uint64(self._bound))
        if self._parts and len(chosen):
            chosen = chosen[~self._parts[0].has(hashes[chosen])]

        def recorded(rows: npt.NDArray[np.int64]) -> _RecordedRows:
            tensors = {"ids": torch.from_numpy(ids[rows]), "embeddings": embeddings.detach()[torch.from_numpy(rows)]}
            if columns is not None:
                tensors["codes"], tensors["numbers"] = columns(rows)
            return _RecordedRows(hashes[rows], tensors)

        if len(chosen):
            if not self._parts:
                self._limit(recorded(chosen[:1]))
            self._insert(recorded(chosen[np.unique(hashes[chosen], return_index=True)[1][: self._max_rows]]))

    def write(self) -> None:
        """Write the sample, if it changed.

        Raises:
            OSError: The disk is full.
        """
        if not self._changed:
            return
        self._changed = False
        sample = _merged(self._parts, self._max_rows)  # of what is recorded by now: more may be added meanwhile
        make_folder(self.path.parent)
        write_tensors(self.path, sample.tensors, {"training": self._training, "key": self._key.tobytes().hex()})

    def _limit(self, first: _RecordedRows) -> None:
        """Take the size of a row from the first one."""
        self._max_rows = min(self._max_rows, first.max_rows)
        self._parts = (_RecordedRows(first.hashes[:0], {name: tensor[:0] for name, tensor in first.tensors.items()}),)

    def _insert(self, rows: _RecordedRows) -> None:
        self._parts = (*self._parts, rows)
        self._waiting += len(rows)
        self._changed = True
        if self._waiting > self._max_rows // 4:
            self._merge()

    def _merge(self) -> None:
        if self._waiting:
            merged = _merged(self._parts, self._max_rows)
            if len(merged) == self._max_rows:
                self._bound = int(merged.hashes[-1])
            self._parts = (merged,)
            self._waiting = 0

    def _hashes(self, ids: Digests) -> npt.NDArray[np.uint64]:
        words = np.ascontiguousarray(ids).view(np.uint64).reshape(-1, 2)
        return hashed_words(hashed_words(words[:, 0] ^ self._key[0]) ^ words[:, 1] ^ self._key[1])

    def _continue(self) -> None:
        """Continue the file, unless it is of another training, of another width, or damaged."""
        try:
            tensors, header = read_tensors(self.path)
            if header["training"] != self._training:
                return
            self._key = np.frombuffer(bytes.fromhex(header["key"]), dtype=np.uint64).copy()
        except (OSError, ValueError, KeyError):
            return
        if len(tensors["ids"]):
            rows = _RecordedRows(self._hashes(tensors["ids"].numpy()), tensors)
            self._limit(rows)
            self._insert(rows)
            self._merge()
            self._changed = False


def _merged(parts: Sequence[_RecordedRows], max_rows: int) -> _RecordedRows:
    """The rows of the smallest hashes among all parts, ascending; of several with one hash, the first."""
    hashes, first = np.unique(np.concatenate([part.hashes for part in parts]), return_index=True)
    chosen = torch.from_numpy(first[:max_rows])
    tensors = {name: torch.cat([part.tensors[name] for part in parts])[chosen] for name in parts[0].tensors}
    return _RecordedRows(hashes[:max_rows], tensors)


def read_sample(path: Path) -> ServedRows:
    """Read a sample.

    Raises:
        DataError: It is missing or damaged.
    """
    try:
        tensors, _ = read_tensors(path)
        ids = tensors["ids"].numpy()
        embeddings = tensors["embeddings"]
        empty: Mapping[str, Tensor] = {
            "codes": torch.zeros(len(ids), 0, dtype=torch.int32),
            "numbers": torch.zeros(len(ids), 0),
        }
        return ServedRows(ids, embeddings, *({**empty, **tensors}[name] for name in ("codes", "numbers")))
    except (OSError, ValueError, KeyError) as damage:
        raise DataError(f"{path} is no readable sample of served rows ({damage}); remove it") from None
