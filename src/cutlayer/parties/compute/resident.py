"""A party's rows on its GPU, where batches are gathered without a copy for each."""

from __future__ import annotations

import torch
from torch import Tensor

from cutlayer.data.store import Store
from cutlayer.kernels.rows.to_device import to_device
from cutlayer.parties.compute.device import CPU

MAX_MEMORY_SHARE = 0.5
"""Share of a GPU's free memory that rows may take: models, batches and other parties of the process need the rest."""


def fits_on_device(nbytes: int, free: int, taken: int = 0) -> bool:
    """Whether a matrix is held on a GPU.

    Args:
        nbytes: Size of the matrix.
        free: Bytes of the GPU that were free before the first one.
        taken: Bytes of those that are held already.

    >>> fits_on_device(40, 100), fits_on_device(40, 100, taken=20), fits_on_device(0, 0)
    (True, False, True)
    """
    return taken + nbytes <= MAX_MEMORY_SHARE * free


def free_bytes(device: torch.device) -> int:
    """Free memory of a GPU; 0 of any other device."""
    return int(torch.cuda.mem_get_info(device)[0]) if device.type == "cuda" else 0


class ResidentRows:
    """Gathers a party's rows on its device.

    What does not fit stays on the CPU, where each batch is gathered and copied through page-locked memory; on the CPU
    itself nothing is copied. Row numbers go to the device for all batches of an epoch at once.

    Args:
        device: Device of the party.
    """

    def __init__(self, device: torch.device) -> None:
        self._device, self._taken = device, 0
        self._free: int | None = None
        self._held: dict[str, tuple[object, int, Tensor | Store | None]] = {}

    def gather(self, store: Store, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Codes and numbers of some rows of the party's table, as `Store.gather`, on the device.

        Args:
            store: Encoded columns, of which a party has one.
            rows: Row numbers, int64 (n,).
        """
        if self._device == CPU:
            return store.gather(rows)
        there = self._copy("columns", store, 0, store.bytes)
        if isinstance(there, Store):
            return there.gather(self._numbers(rows))
        codes, numbers = store.gather(rows)
        return to_device(codes, self._device), to_device(numbers, self._device)

    def take(self, name: str, matrix: Tensor, rows: Tensor) -> Tensor:
        """Some rows of a tensor with an entry for each row of the run, on the device.

        Args:
            name: Name of the tensor; another one under a name replaces the one before.
            matrix: (n, ...), on the CPU. It may be changed in place.
            rows: Row numbers, int64 (m,).
        """
        if self._device == CPU:
            return matrix.index_select(0, rows)
        there = self._copy(name, matrix, matrix._version, matrix.nbytes)
        if isinstance(there, Tensor):
            return there.index_select(0, self._numbers(rows))
        return to_device(matrix.index_select(0, rows), self._device)

    def _copy(self, name: str, source: Store | Tensor, version: int, nbytes: int) -> Tensor | Store | None:
        """The copy of a source on the device, made when it is needed first; `None` where it does not fit."""
        known, known_version, there = self._held.get(name, (None, 0, None))
        if known is source and known_version == version:
            return there
        if self._free is None:
            self._free = free_bytes(self._device)
        if there is not None:
            self._taken -= there.bytes if isinstance(there, Store) else there.nbytes
        there = source.to(self._device) if fits_on_device(nbytes, self._free, self._taken) else None
        self._taken += nbytes if there is not None else 0
        self._held[name] = source, version, there
        return there

    def _numbers(self, rows: Tensor) -> Tensor:
        """Row numbers on the device: batches are pieces of one tensor, which is copied whole."""
        storage = rows.untyped_storage()
        whole, _, there = self._held.get("numbers", (None, 0, None))
        if not (isinstance(whole, Tensor) and whole.data_ptr() == storage.data_ptr() and isinstance(there, Tensor)):
            whole = rows.new_empty(0).set_(storage)
            there = to_device(whole, self._device)  # those of some schedules are of one batch alone
            self._held["numbers"] = whole, 0, there
        return there.narrow(0, rows.storage_offset(), len(rows))
