"""The kinds of messages that may cross between two parties."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Kind(StrEnum):
    """Every message of the protocol."""

    HELLO = "hello"  # job digest, versions, kind and rule of the ids, number of rows
    ALIGN = "align"  # session and number of buckets of a private set intersection, first bucket
    MASKED = "masked"  # (n, 32) masked ids of the sender in a bucket
    REMASKED = "remasked"  # (n, 32) masked ids of the receiver, masked again by the sender
    COMMON = "common"  # number of common rows, active -> passive, where no more is revealed
    PROOF = "proof"  # 32 bytes of the proof that both parties hold the same common rows
    IDS = "ids"  # (n, 16) digests of row ids, passive -> active; drawn ids of rows with several keys, active -> passive
    ORDER = "order"  # (m,) positions of the common rows in the receiver's table
    SPLIT = "split"  # (m,) the part of each common row: 0 train, 1 validation, 2 test; active -> passive
    LABELS = "labels"  # (n,) drawn labels of the training rows, how they were drawn; active -> passive, once
    READY = "ready"  # digest of the ordered ids, width of the embedding, key of the rows of a pilot
    EMBEDDING = "embedding"  # (n, width) of a training batch, passive -> active
    GRADIENT = "gradient"  # (n, width), active -> passive
    REQUEST = "request"  # the active party asks for a batch of held-out rows, or of rows that are released once
    EVALUATION = "evaluation"  # (n, width) of that batch, passive -> active
    RELEASE = "release"  # (n, width) of a batch of all rows, from a party that releases each row once
    EPOCH_END = "epoch_end"  # end of an epoch: whether to stop, and whether it was the best
    COMMITTED = "committed"  # this party's part of the checkpoint is on disk
    EVIDENCE = "evidence"  # evidence of a passive party's protections
    CLOSE = "close"  # the last message of each side
    OFFER = "offer"  # the half of a run that a party predicts with, and the width of its embeddings
    LOOKUP = "lookup"  # online: (n, 16) digests of the ids that the active party asks about
    LOOKED_UP = "looked_up"  # online: (n, width) of those rows, zeros where the status says that there is none
    FILE = "file"  # in an exchange of files: a part of a file of drawn labels, or of a release, which is sealed
    PROBE = "probe"  # online: asks a party that did not answer in time whether it answers again
    ALIVE = "alive"  # online: the answer to a probe

    __hash__ = str.__hash__  # that of an enumeration is not compiled, and a message looks its kind up a dozen times


NOTES: Mapping[str, str] = {
    "expired": "nothing was sent: what others had sent was deleted here, as `keep` of the job says",
}
"""Description of each kind of line of a trail that is no message."""

MEANINGS: Mapping[str, str] = {
    "hello": "digest of the job, versions, and the number of rows of the table",
    "align": "the beginning of a private set intersection: no ids",
    "masked": "own ids, masked by a secret key: not readable without it",
    "remasked": "the other party's masked ids, masked once more",
    "common": "how many rows are common",
    "proof": "a proof that both sides have the same common rows",
    "ids": "digests of row ids: an id that can be guessed can be recognised; from the active party, ids that it drew",
    "order": "which rows of the other party are common, and their order",
    "split": "which common rows train, validate and test, where a column or the labels decide",
    "labels": "drawn labels of training rows, once, and how they were drawn",
    "ready": "a digest of the order of the rows, and the width of the embedding; in a pilot the key of its rows",
    "embedding": "numbers computed from the columns of training rows",
    "gradient": "numbers computed from labels and embeddings of training rows",
    "request": "a request for a batch of rows",
    "evaluation": "numbers computed from the columns of held-out rows, or of rows to predict",
    "release": "numbers computed from the columns of rows, released once",
    "epoch_end": "whether training goes on, and whether the epoch was the best",
    "committed": "that a checkpoint was saved here",
    "evidence": "what this party's protections covered",
    "close": "the end of the link, and its reason",
    "offer": "which model predicts, and the width of its embeddings",
    "lookup": "digests of the ids that are asked about",
    "looked_up": "numbers computed from the columns of rows that were asked about",
    "file": "a part of a file: its messages are in this trail too",
    "probe": "a question whether the other party answers",
    "alive": "the answer to that question",
}
"""Description of each kind, for a reader who does not know the protocol."""
