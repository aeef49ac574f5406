"""Which row's drawn label a partner is sent, where columns of the label owner's table refer to the partner's rows."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cutlayer.data.align import Positions
from cutlayer.data.ids import Digests
from cutlayer.kernels.noise.aes import derive, encrypt_blocks
from cutlayer.kernels.noise.one_of_each import draw_row_of_each_id
from cutlayer.storage.row_arrays import gathered_rows


def label_rows(
    numbers: Positions, ids: Digests, digests: Digests, training: Positions, own_training: Positions, secret: bytes
) -> tuple[Positions, npt.NDArray[np.bool_]]:
    """The label owner's training row whose drawn label stands for each training row of a partner.

    Of several that refer to it one is drawn. A partner's row to which none refers, since all that do are held out, has
    the label of one of all training rows: so the partner learns neither which of its rows these are, nor what would
    follow of how many rows refer to each. Its labels are then as a mixture with those of all rows, which leaves the
    order of its predictions. The draws depend on ids and the secret, and on no label.

    Guarantee: that of the drawn labels, for the label of each row of the label owner, whichever of them are sent, and
    to how many partners.

    Args:
        numbers: The partner's own number of each row, int64 (n,); -1 of a row that it lacks.
        ids: Ids of the partner's rows, uint8 (m, 16).
        digests: Ids of the label owner's rows, uint8 (n, 16).
        training: Training rows of the label owner, int64 (t,), one or more.
        own_training: Training rows of the partner, by its own numbers, int64 (u,).
        secret: Secret of the label owner.

    Returns:
        Rows of the label owner, int64 (u,), and whether each refers to the partner's row, bool (u,).
    """
    own = numbers[training]
    order = np.argsort(own, kind="stable")
    order = order[np.searchsorted(own[order], 0) :]
    chosen, _ = draw_row_of_each_id(own[order], gathered_rows(digests, training[order]), secret)
    row = np.full(len(ids), -1, dtype=np.int64)
    row[own[order[chosen]]] = training[order[chosen]]
    words = encrypt_blocks(derive(secret, b"cutlayer row of no id"), ids[own_training]).view("<u8")[:, 0]
    others = training[(words % np.uint64(len(training))).astype(np.int64)]
    rows = row[own_training]
    return np.where(rows < 0, others, rows), rows >= 0
