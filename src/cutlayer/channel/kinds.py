"""The kinds of messages that may cross between two parties."""

from __future__ import annotations

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
    READY = "ready"  # digest of the ordered ids, width of the embedding
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
    PROBE = "probe"  # online: asks a party that did not answer in time whether it answers again
    ALIVE = "alive"  # online: the answer to a probe

    __hash__ = str.__hash__  # that of an enumeration is not compiled, and a message looks its kind up a dozen times
