"""The indices of the common rows, by which the active party tells each passive party which rows these are."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from functools import reduce

import numpy as np
import torch

from cutlayer.alignment.intersection import DUMMY_RANK, CommonPositions
from cutlayer.channel import Kind, Message, Port
from cutlayer.channel.receiving import receive_chunks, send_in_chunks
from cutlayer.data.align import Positions
from cutlayer.errors import AlignmentError, ProtocolError


def common_ranks(matches: Mapping[str, CommonPositions]) -> tuple[Positions, dict[str, Positions]]:
    """The rows that all parties have.

    Args:
        matches: Common rows with each passive party, all buckets together; indices numbered through all buckets.

    Returns:
        Ranks of the rows that all have, ascending; and by passive party their indices, in the order of the ranks.

    Raises:
        ProtocolError: A peer's point matched a random one of this party; practically impossible.
    """
    for matched, _ in matches.values():
        if len(matched) and matched.min() == DUMMY_RANK:
            raise ProtocolError("expected matches with rows alone, got one with a random point")
    ranks = reduce(np.intersect1d, [np.sort(matched) for matched, _ in matches.values()])
    indices: dict[str, Positions] = {}
    for peer, (matched, slots) in matches.items():
        order = np.argsort(matched)
        indices[peer] = slots[order[np.searchsorted(matched[order], ranks)]]
    return ranks, indices


def receive_indices(port: Port, ranks: Positions, *, may_be_none: bool = False) -> Generator[Port, Message, Positions]:
    """Receive the indices of the common rows.

    Args:
        port: Port to the active party.
        ranks: Ranks of this party's indices in all buckets, `DUMMY_RANK` where no row is.
        may_be_none: Whether it is no error that there is none.

    Returns:
        Ranks of the common rows, ascending, int64 (m,).

    Raises:
        ProtocolError: An index that does not exist, repeats, or is that of no row.
    """
    received = yield from receive_chunks(port, Kind.ORDER, "positions", len(ranks))
    indices = received.numpy()
    if len(indices) and (indices.min() < 0 or indices.max() >= len(ranks)):
        raise ProtocolError.expected(f"indices 0 to {len(ranks) - 1} from {port.peer}", f"{indices.min()} and others")
    common = np.sort(ranks[indices])
    if not len(common):
        if may_be_none:
            return common
        raise AlignmentError.expected(f"rows that {port.peer} and this party have", "none")
    if common[0] == DUMMY_RANK or not (common[1:] > common[:-1]).all():
        raise ProtocolError(f"expected indices of distinct rows from {port.peer}, got others")
    return common


def send_indices(port: Port, indices: Positions) -> None:
    """Send a passive party the indices of the common rows, ascending: the order of this party's rows is not in them."""
    send_in_chunks(port, Kind.ORDER, "positions", torch.from_numpy(np.sort(indices)))
