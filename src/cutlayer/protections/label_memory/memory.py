"""The memory of the labels that rows were drawn for: without it, later draws would show whose label changed."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from cutlayer.errors import CheckpointError, DataError, RunFolderError
from cutlayer.kernels.noise.aes import derive
from cutlayer.lazy import Tensor, torch
from cutlayer.protections.label_memory.record import LabelRecord, damaged, renamed
from cutlayer.protections.label_memory.words import Words, changed_rows, find, first_words, sorted_pairs, unknown
from cutlayer.storage.durable import locked, make_folder, replace_whole, write_whole
from cutlayer.storage.json_values import parse_json
from cutlayer.storage.row_arrays import chunks_of, computed_rows, joined_rows
from cutlayer.storage.row_tensors import copied_rows

Choice = Literal["refuse", "keep", "redraw"]
"""Action on labels that changed after a draw."""
_MAX_WAIT_SECONDS, _PAUSE_SECONDS = 60.0, 0.05
_BEGUN_STATE, _ENDED_STATE = "begun\n", "ended\n"


@dataclass(frozen=True)
class Drawn:
    """Inputs of the draws apart from the row, its label and the secret.

    Attributes:
        column: Name of the label column.
        eps: Privacy of one draw, 0 or more.
        classes: Number of values that a label can take, 2 or more.
    """

    column: str
    eps: float
    classes: int

    @property
    def purpose(self) -> tuple[bytes, ...]:
        """The same as bytes, to derive keys from."""
        return self.column.encode(), float(self.eps).hex().encode(), str(self.classes).encode()


@dataclass(frozen=True)
class Recalled:
    """The labels to draw for.

    Attributes:
        codes: Class codes, int64 (n,): the current codes, except in rows that keep an old draw.
        memory: Random name of the memory; a memory that was lost and begun again has another name.
        generation: Number of the generation; another generation draws every row anew.
        old_draws: Number of rows with the code of their old draw in place of their current code.
        which: Digest of what the draws depend on besides the row and its label (`Drawn`).
        unfinished: Number of generations of other runs that did not end, whose draws no ledger states.
    """

    codes: Tensor
    memory: str
    generation: int
    old_draws: int
    which: str
    unfinished: int

    @property
    def draws(self) -> str:
        """Name of the draws; the memory's name is part of it, so that draws of a lost memory never recur."""
        return f"{self.memory} {self.generation}"


class LabelMemory:
    """Keyed digests of the labels that rows were drawn for, stored next to the secret.

    A draw is a function of the row's id and label, so that a repeated training repeats it. If a label changes in
    between, its draw may change, while no other does: each difference between two trainings would prove a change. So
    the label that each row was drawn for is remembered, and a change is refused, or the old draw is kept, or all rows
    are drawn under a new generation, where differences reveal nothing.

    A row takes 16 bytes: 8 of its id and 8 of its label, both enciphered under keys derived from the secret, so that
    the file is useless without it. Two ids agree in their 8 bytes with probability 2^-64 a pair; that would look like a
    change and be refused.

    The name of the draws includes that of the memory, which is random for each generation. So a memory that is lost, or
    an older copy of it, begins draws that are independent of earlier ones. Rows that were added after an older copy was
    made are not covered: the copy does not know that they were drawn.

    Args:
        folder: Folder next to the secret, with a file for each generation of each label column, eps and number of
            classes.
        record: File of the run folder that holds the run's generation; a resume must use the same.
        secret: 32 bytes that stay with the label's owner.
        simulated: Whether nothing that is drawn leaves this process; generations that did not end are then neither
            recorded nor counted.
        table: Digest of all labels of the table, where rows have no ids: the memory is then of the table as a whole.
            With `redraw` a training of the same table repeats its draws; one changed label begins a generation.
        named: Whether the names of generations are random; else they follow from the secret, so that a supplied key
            repeats the draws anywhere.

    Reference: Erlingsson et al. 2014, RAPPOR (arXiv 1407.6981), section 3.1 (memoised randomised response), and Ding et
    al. 2017, Collecting telemetry data privately (arXiv 1712.01524), on values that change.
    """

    def __init__(
        self,
        folder: Path,
        record: Path,
        secret: bytes,
        *,
        simulated: bool = False,
        table: bytes = b"",
        named: bool = True,
    ) -> None:
        self.folder, self.simulated = folder, simulated
        self._record, self._secret, self._table, self._named = LabelRecord(record), secret, table, named

    def recall(
        self, codes: Tensor, digests: Tensor, drawn: Drawn, choice: Choice, classes: Sequence[str] = ()
    ) -> Recalled:
        """Compare labels with those of earlier draws, and remember them; all is on disk when this returns.

        With `redraw` every new training begins a generation, whether a label changed or not: new draws then reveal
        nothing about the labels.

        Args:
            codes: Current class codes, int64 (n,).
            digests: Digests of the row ids, uint8 (n, 16), distinct.
            drawn: The inputs of the draws apart from the row.
            choice: The action if labels changed.
            classes: Names of the classes, in the order of their codes; without them they are not compared.

        Raises:
            DataError: Labels changed and `choice` is `refuse`, or the run began before they did; or labels changed and
                the classes have other names than when they were drawn, so that a code may mean another class.
            CheckpointError: The memory is damaged or missing.
            RunFolderError: Another process has used it for a minute.
        """
        which = self._which(drawn)
        make_folder(self.folder)
        with self._locked():
            begun, name = self._record.draws(which)
            ids, labels = self._words(digests, drawn), self._label_words(codes, digests, drawn)
            generation = self._next(which, choice, labels) if begun is None else begun
            path = self._path(which, generation)
            if begun is not None and not path.exists():
                raise CheckpointError.expected(f"the label memory {path}", "none", "restore it from a backup")
            known_ids, known_labels, memory, named, stated = self._read(path)
            tag = self._classes_tag(classes, drawn) if classes else named
            if begun is not None and name != memory:
                wanted = f"the label memory {path} that the run was begun with"
                raise CheckpointError.expected(wanted, "another one", "restore it from a backup, or start a new run")
            where = find(known_ids, ids)
            changed = changed_rows(where, known_labels, labels)
            old, count = codes, int(np.count_nonzero(changed))
            if count and self._table:
                raise _other_table(drawn, begun=begun is not None)
            if count and named and named != tag:
                raise renamed(drawn.column, classes)
            if count:
                self._check(count, len(codes), choice, drawn, begun is not None)
                old = self._old_codes(codes, digests, drawn, changed, where, known_labels)
            if (named, stated) != (tag, drawn) or any(
                (where[start:end] < 0).any() for start, end in chunks_of(len(where))
            ):
                fresh = [unknown(words, where) for words in (ids, labels)]
                both = joined_rows([known_ids, fresh[0]]), joined_rows([known_labels, fresh[1]])
                self._write(path, *both, memory, tag, drawn)
            # After the memory: a record without its memory would refuse the resume of a run that died in between.
            if begun is None:
                self._record.note_draws(which, generation, memory)
            unfinished = self._unfinished(which, generation)
        return Recalled(old, memory, generation, count, which, unfinished)

    def forget(self, digests: Tensor) -> None:
        """Remove rows from all memories under the secret, whatever labels they are of; as if these were never drawn.

        Args:
            digests: Digests of the row ids, uint8 (n, 16), as any job compares them.

        Raises:
            CheckpointError: A memory is damaged, or of another name than what it is of.
        """
        with self._locked() if self.folder.exists() else nullcontext():
            for path in sorted(self.folder.glob("*.safetensors")):
                ids, labels, memory, tag, drawn = self._read(path)
                if drawn is None or path.stem.rpartition("-")[0] != self._which(drawn):
                    raise damaged(path)
                left = ~np.isin(ids, self._words(digests, drawn))
                if not left.all():
                    self._write(path, ids[left], labels[left], memory, tag, drawn)

    def latest(self, drawn: Drawn, choice: Choice) -> str | None:
        """Name of the draws that a new training repeats; `None` where it makes new ones.

        Args:
            drawn: The inputs of the draws apart from the row.
            choice: The action if labels changed.

        Raises:
            CheckpointError: The memory is damaged.
        """
        which = self._which(drawn)
        generation = self._latest(which)
        if generation is None or self._next(which, choice, self._table_word) != generation:
            return None
        return f"{self._read(self._path(which, generation))[2]} {generation}"

    def begin(self, recalled: Recalled) -> None:
        """Record that something that depends on the draws is about to be sent; on disk when this returns."""
        path = self._state(recalled.which, recalled.generation)
        if not self.simulated and not path.exists():
            write_whole(path, _BEGUN_STATE)

    def end(self, recalled: Recalled) -> None:
        """Record that a run with these draws has ended, whose ledger states them."""
        if not self.simulated:
            write_whole(self._state(recalled.which, recalled.generation), _ENDED_STATE)

    def _state(self, which: str, generation: int) -> Path:
        return self.folder / f"{which}-{generation}.state"

    def _unfinished(self, which: str, generation: int) -> int:
        """Number of other generations that were begun, with no run that ended."""
        others = {*self.folder.glob(f"{which}-*.state")} - {self._state(which, generation)}
        return 0 if self.simulated else sum(path.read_bytes() != _ENDED_STATE.encode() for path in others)

    @staticmethod
    def _check(changed: int, rows: int, choice: Choice, drawn: Drawn, begun: bool) -> None:
        if choice == "keep":
            return
        wanted = f"label {drawn.column!r} of every training row as it was when it was drawn for"
        got = f"another label in {changed:,} of {rows:,} rows"
        if choice == "redraw" and begun:
            raise DataError.expected(wanted, got, "the run began before they changed: restore them, or start a new run")
        remedy = (
            "their draws would reveal which rows those are. Choose at the label's owner: 'changed_labels: keep' of "
            "label_dp leaves these rows their old draws; 'changed_labels: redraw' draws every row anew, and the eps of "
            "both trainings add up"
        )
        raise DataError.expected(wanted, got, remedy)

    def _old_codes(
        self,
        codes: Tensor,
        digests: Tensor,
        drawn: Drawn,
        changed: npt.NDArray[np.bool_],
        where: npt.NDArray[np.int64],
        known: Words,
    ) -> Tensor:
        """The codes, with changed rows as they were, by trying every class."""
        old = copied_rows(codes)
        for start, end in chunks_of(len(codes)):
            rows = start + np.flatnonzero(changed[start:end])
            stored, missing = known[where[rows]], np.ones(len(rows), dtype=bool)
            for code in range(drawn.classes):
                tried = self._label_words(torch.full((len(rows),), code), digests[rows], drawn)
                same = tried == stored
                old[rows[same]] = code
                missing &= ~same
            if missing.any():
                raise damaged(self.folder)
        return old

    @property
    def _table_word(self) -> Words:
        """The label of a whole table, which is the only row of its memory."""
        return np.frombuffer(derive(self._secret, b"label memory table", self._table, size=8), np.uint64)

    def _words(self, digests: Tensor, drawn: Drawn) -> Words:
        if self._table:
            return np.zeros(1, np.uint64)
        key = derive(self._secret, b"label memory id", *drawn.purpose)
        return computed_rows(len(digests), np.uint64, lambda part: first_words(key, digests[part].numpy()))

    def _label_words(self, codes: Tensor, digests: Tensor, drawn: Drawn) -> Words:
        if self._table:
            return self._table_word

        def piece(part: slice) -> Words:
            own, words = codes[part].numpy(), digests[part].numpy()
            enciphered, order = np.zeros(len(own), np.uint64), np.argsort(own, kind="stable")
            starts = np.searchsorted(own[order], np.arange(drawn.classes + 1))
            for code in np.flatnonzero(np.diff(starts)):
                rows = order[starts[code] : starts[code + 1]]
                key = derive(self._secret, b"label memory label", *drawn.purpose, str(code).encode())
                enciphered[rows] = first_words(key, words[rows])
            return enciphered

        return computed_rows(len(codes), np.uint64, piece)

    def _which(self, drawn: Drawn) -> str:
        purpose = b"label memory of a table" if self._table else b"label memory"
        return derive(self._secret, purpose, *drawn.purpose, size=8).hex()

    def _latest(self, which: str) -> int | None:
        """The latest generation; `None` before the first."""
        stems = [path.stem for path in self.folder.glob(f"{which}-*.safetensors")]
        return max((int(stem.rpartition("-")[2]) for stem in stems), default=None)

    def _next(self, which: str, choice: Choice, labels: Words) -> int:
        """The generation of a new training."""
        latest = self._latest(which)
        if latest is None:
            return 0
        same = self._table and np.array_equal(self._read(self._path(which, latest))[1], labels)
        return latest + (choice == "redraw" and not same)

    def _path(self, which: str, generation: int) -> Path:
        return self.folder / f"{which}-{generation}.safetensors"

    def _read(self, path: Path) -> tuple[Words, Words, str, str, Drawn | None]:
        """Ids, sorted, their labels, the name of the memory, the digest of the classes, and what the draws are of.

        The digest is empty, and the latter `None`, where the file does not have them. Where there is no memory, there
        are no ids, and the name is a new one.
        """
        from safetensors import SafetensorError, safe_open

        if not path.exists():
            name = secrets.token_hex(8) if self._named else derive(self._secret, path.stem.encode(), size=8).hex()
            return np.zeros(0, np.uint64), np.zeros(0, np.uint64), name, "", None
        try:
            with safe_open(path, framework="pt") as file:  # which maps the file: NumPy's tensors would be copies
                header = file.metadata()
                ids, labels = (file.get_tensor(name).numpy() for name in ("ids", "labels"))
            checked, memory, classes = header["check"], header["memory"], header["classes"]
            of = Drawn(*parse_json(header["of"]))
        except (OSError, SafetensorError, KeyError, TypeError, ValueError):
            raise damaged(path) from None
        if checked != self._tag(ids, labels, memory):
            raise damaged(path)
        return ids, labels, memory, classes, of

    def _write(self, path: Path, ids: Words, labels: Words, memory: str, classes: str, of: Drawn) -> None:
        from cutlayer.storage.tensor_file import stream_tensors

        ids, labels = sorted_pairs(ids, labels)
        header = {
            "check": self._tag(ids, labels, memory),
            "memory": memory,
            "classes": classes,
            "of": json.dumps(astuple(of)),
        }
        tensors = {"ids": torch.from_numpy(ids), "labels": torch.from_numpy(labels)}
        replace_whole(path, lambda partial: stream_tensors(partial, tensors, header))

    def _classes_tag(self, classes: Sequence[str], drawn: Drawn) -> str:
        """Keyed digest of the names of the classes, in the order of their codes."""
        return derive(self._secret, b"label memory classes", *drawn.purpose, repr([*classes]).encode(), size=16).hex()

    def _tag(self, ids: Words, labels: Words, memory: str) -> str:
        parts = memory.encode(), ids.data, labels.data
        return derive(self._secret, b"label memory check", *parts, size=16).hex()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Wait for another training that is comparing its labels, which takes less than a second."""
        until = time.monotonic() + _MAX_WAIT_SECONDS
        with ExitStack() as stack:
            while True:
                try:
                    stack.enter_context(locked(self.folder / "lock", "a training that draws labels"))
                    break
                except RunFolderError:
                    if time.monotonic() > until:
                        raise
                    time.sleep(_PAUSE_SECONDS)
            yield


def _other_table(drawn: Drawn, *, begun: bool) -> DataError:
    """The error for other labels of a table whose rows have no ids."""
    wanted = f"the labels {drawn.column!r} of the whole table as they were when they were drawn for"
    remedy = (
        "without ids all rows would be drawn once more. Restore the labels, or write 'changed_labels: redraw' of "
        "label_dp at the label's owner, and the eps of both trainings add up"
    )
    if begun:
        remedy = "the run began before they changed: restore them, or start a new run"
    return DataError.expected(wanted, "other ones", remedy)
