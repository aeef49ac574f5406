"""The kinds of messages that may cross between two parties."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Self


class Kind(StrEnum):
    """Every message of the protocol.

    Attributes:
        meaning: What it is, for a reader who does not know the protocol.
    """

    meaning: str

    def __new__(cls, value: str, meaning: str = "") -> Self:
        """Make the kind of a value with its meaning."""
        kind = str.__new__(cls, value)
        kind._value_ = value
        kind.meaning = meaning
        return kind

    HELLO = "hello", "digest of the job, versions, and the number of rows of the table"
    ALIGN = "align", "the beginning of a private set intersection: no ids"
    MASKED = "masked", "own ids, masked by a secret key: not readable without it"
    REMASKED = "remasked", "the other party's masked ids, masked once more"
    COMMON = "common", "how many rows are common"
    PROOF = "proof", "a proof that both sides have the same common rows"
    IDS = (
        "ids",
        ("digests of row ids: an id that can be guessed can be recognised; from the active party, ids that it drew"),
    )
    ORDER = "order", "which rows of the other party are common, and their order"
    SPLIT = "split", "which common rows train, validate and test, where a column or the labels decide"
    LABELS = "labels", "drawn labels of training rows, once, and how they were drawn"
    READY = "ready", "a digest of the order of the rows, and the width of the embedding; in a pilot the key of its rows"
    EMBEDDING = "embedding", "numbers computed from the columns of training rows"
    GRADIENT = "gradient", "numbers computed from labels and embeddings of training rows"
    REQUEST = "request", "a request for a batch of rows"
    EVALUATION = "evaluation", "numbers computed from the columns of held-out rows, or of rows to predict"
    RELEASE = "release", "numbers computed from the columns of rows, released once"
    EPOCH_END = "epoch_end", "whether training goes on, and whether the epoch was the best"
    COMMITTED = "committed", "that a checkpoint was saved here"
    EVIDENCE = "evidence", "what this party's protections covered"
    CLOSE = "close", "the end of the link, and its reason"
    OFFER = "offer", "which model predicts, and the width of its embeddings"
    LOOKUP = "lookup", "digests of the ids that are asked about"
    LOOKED_UP = "looked_up", "numbers computed from the columns of rows that were asked about"
    FILE = "file", "a part of a file: its messages are in this trail too"
    PROBE = "probe", "a question whether the other party answers"
    ALIVE = "alive", "the answer to that question"

    __hash__ = str.__hash__  # that of an enumeration is not compiled, and a message looks its kind up a dozen times


EXPIRED_MEANING = "nothing was sent: what others had sent was deleted here, as `keep` of the job says"


def meaning_of(name: str) -> str:
    """What a line of a trail is, by the name of its kind: of a message, or of a deletion."""
    meanings: Mapping[str, str] = {kind: kind.meaning for kind in Kind} | {"expired": EXPIRED_MEANING}
    return meanings.get(name, "unknown to this version")
