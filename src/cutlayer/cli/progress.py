"""The progress bar of a run: rows per second, loss, held-out metric and the leak measured so far."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from cutlayer.jobs.options import Progress as Stages
from cutlayer.lazy import Tensor
from cutlayer.report import rounding
from cutlayer.results.decimals import decimals

if TYPE_CHECKING:
    from cutlayer.parties.session.observer import EpochRecord
    from cutlayer.problem.task import Task


REFRESH_ROWS = 16_384
STEPS_PER_LINE = 100
"""Steps between two lines of a log."""
WIDE_COLUMNS = 110
"""Columns of a terminal that shows everything."""

_SHORT = {"accuracy": "acc"}


@contextmanager
def progress_for(*, quiet: bool) -> Iterator[Stages]:
    """Progress on standard error, or none, as with `--json`."""
    if quiet:
        yield Stages()
        return
    with TerminalProgress(Console(stderr=True)) as progress:
        yield progress


class TerminalProgress(Stages):
    """Shows a bar for each training on a terminal; elsewhere a line for every 100 steps and one for each epoch.

    Args:
        console: Standard error, so that standard output stays free for results.
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self.is_wide = console.width >= WIDE_COLUMNS or not console.is_terminal
        columns = (
            TextColumn("[bold]{task.description:<24}" if self.is_wide else "[bold]{task.description:<16}"),
            BarColumn(bar_width=18 if self.is_wide else 8),
            TextColumn("{task.fields[text]}"),
            TimeElapsedColumn(),
            *((TextColumn("[dim]left"), TimeRemainingColumn(compact=True)) if self.is_wide else ()),
        )
        self.bars = Progress(*columns, console=console, disable=not console.is_terminal)
        self.bar: TaskID | None = None
        self.name = ""
        self._rows = self._rows_shown = 0
        self._epoch = -1
        self._step = 0
        self._text = ""

    def __enter__(self) -> TerminalProgress:
        self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bars.stop()

    def stage(self, name: str) -> None:
        """Begin a bar of unknown length; a training fills in the length when it starts."""
        self._finish()
        self.name = name
        self._rows = self._rows_shown = 0
        self._epoch, self._step = -1, 0
        self._text = ""
        self.bar = self.bars.add_task(name if self.is_wide or len(name) <= 16 else f"{name[:15]}…", total=None, text="")

    def aligned(self, buckets: int, total: int) -> None:
        """Show how much of a large alignment is done."""
        if self.bar is None:
            self.stage("alignment")
        text = f"{buckets} of {total} buckets of ids aligned"
        if self.bar is not None:
            self.bars.update(self.bar, total=total, completed=buckets, text=text)
        if total > 1:
            self._line(text)

    def started(self, task: Task, truth: Tensor, training: Tensor, epochs: int, start: int) -> None:
        """Give the bar its length, in rows."""
        self.task = task
        if self.bar is not None:
            self.bars.update(self.bar, total=epochs * len(training), completed=start * len(training))

    def stepped(self, epoch: int, rows: int, loss: float) -> None:
        """Move the bar, a few times a second at most, or write a line.

        Steps are counted from the beginning of the epoch, or from that of a resume within it.
        """
        self._rows += rows
        self._step = self._step + 1 if epoch == self._epoch else 1
        self._epoch = epoch
        if self._step % STEPS_PER_LINE == 0:
            self._line(f"epoch {epoch + 1}, step {self._step}: loss {decimals(loss)}")
        if self._rows - self._rows_shown >= REFRESH_ROWS:
            self._advance(self._text or f"loss {decimals(loss)}")

    def ended(self, record: EpochRecord) -> None:
        """Show the epoch's metrics."""
        self._text = self._metrics(record)
        self._advance(self._text)
        self._line(f"epoch {record.epoch + 1}: {self._text}")

    def _line(self, text: str) -> None:
        """Write a line where there is no terminal to show a bar on."""
        if not self.console.is_terminal:
            self.console.print(f"{self.name}: {text}", soft_wrap=True, highlight=False)

    def _advance(self, text: str) -> None:
        if self.bar is not None:
            self.bars.update(self.bar, advance=self._rows - self._rows_shown, text=text)
            self._rows_shown = self._rows

    def _metrics(self, record: EpochRecord) -> str:
        """Speed, loss, held-out metric and worst leak of an epoch; on a narrow terminal without the attack's name."""
        metric = self.task.metric
        rows = record.rows_per_second
        speed = f"{rows / 1000:.0f}k" if rows >= 1000 else f"{rows:.0f}"
        parts = [f"{speed} rows/s", f"loss {decimals(record.loss)}"]
        title = metric if self.is_wide else _SHORT.get(metric, metric)
        parts.append(f"{title} {rounding.metric(record.metrics[metric])}")
        if record.part == "cross-validation":  # not what the run is measured on, which rows of fewer parties may be in
            parts[-1] += " by cross-validation on rows of all parties" if self.is_wide else " (cv)"
        worst = max(record.leak.items(), key=lambda item: item[1], default=None)
        if worst:
            parts.append(f"leak {worst[1]:.3f}" + (f" ({worst[0].split('/')[-1]})" if self.is_wide else ""))
        return ("  " if self.is_wide else " ").join(parts)

    def _finish(self) -> None:
        if self.bar is not None:
            total = self.bars.tasks[self.bar].total
            done = self.bars.tasks[self.bar].completed if total else 1
            self.bars.update(self.bar, total=max(done, 1), completed=max(done, 1))
