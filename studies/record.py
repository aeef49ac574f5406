"""A study's results as one JSON document, and the page and figures that are written from it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cutlayer.errors import ConfigError
from cutlayer.storage.durable import make_folder, write_whole
from cutlayer.version import __version__
from studies.page import wrapped
from studies.results import Results, TrialResult
from studies.trials import Study

PUBLISHED = Path(__file__).parent / "results"
"""Folder of the records that the pages of the documentation are written from."""
PAGES = Path(__file__).parents[1] / "docs" / "results"
"""Folder of these pages."""
_FILE_MODE, _FOLDER_MODE = 0o644, 0o755


@dataclass(frozen=True)
class Record:
    """All results of a study, as `NAME.json` in its folder.

    Attributes:
        study: Name of the study.
        version: Version of cutlayer that the study was run with.
        seeds: Number of seeds of each setting that was asked for.
        full: Whether the paper's sizes were run.
        provenance: Sentence on the code that the trainings ran on; empty unless somebody wrote it into the file.
        results: Results of the trainings, in the order in which they were run.
    """

    study: str
    version: str
    seeds: int
    full: bool
    provenance: str
    results: tuple[TrialResult, ...]

    @classmethod
    def of(cls, study: Study, results: list[TrialResult], seeds: int, out: Path) -> Record:
        """Results of this version; the provenance stays as a file in `out` has it."""
        path = out / f"{study.name}.json"
        provenance = cls.load(path).provenance if path.exists() else ""
        return cls(study.name, __version__, seeds, study.full, provenance, tuple(results))

    @classmethod
    def load(cls, path: Path) -> Record:
        """Read a record.

        Raises:
            ConfigError: there is no such file, or it is no record.
        """
        try:
            raw = json.loads(path.read_text(encoding="utf-8"))
            results = tuple(TrialResult(**result) for result in raw.pop("results"))
            return cls(**raw, results=results)
        except FileNotFoundError as error:
            raise ConfigError.expected(f"results in {path}", "no such file", "run the study first") from error
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ConfigError.expected(
                f"the results of a study in {path}", str(error), "run the study again"
            ) from error

    def save(self, out: Path) -> None:
        """Write `NAME.json`: one line for each result, so that differences between versions can be read."""
        head: dict[str, Any] = asdict(self)
        lines = ",\n  ".join(json.dumps(result) for result in head.pop("results"))
        text = json.dumps(head, indent=1).removesuffix("\n}") + f',\n "results": [\n  {lines}\n ]\n}}\n'
        write_whole(out / f"{self.study}.json", text, mode=_FILE_MODE)


def write_page(study: Study, record: Record, out: Path) -> None:
    """Write `NAME.md` and its figures from the results.

    Args:
        study: Study of the record, in the record's size.
        record: Results; settings without results are marked so on the page.
        out: Existing folder.
    """
    page = study.page(Results(record.results))
    make_folder(out / "figures", mode=_FOLDER_MODE)
    for file, picture in page.figures().items():
        write_whole(out / "figures" / file, picture, mode=_FILE_MODE)
    text = f"{_head(study, record)}\n\n{page.markdown()}\n"
    write_whole(out / f"{study.name}.md", wrapped(text), mode=_FILE_MODE)


def _head(study: Study, record: Record) -> str:
    """Title, source, command and settings."""
    hours = sum(result.seconds for result in record.results) / 3600
    seeds = _in_words(sorted({result.seed for result in record.results}))
    file = f"{study.name}.json"
    advice = (study.advice,) if study.advice else ()
    return "\n\n".join(
        (
            f"# {study.title}",
            *advice,
            f"After {study.source}.",
            f"`python -m studies {study.name} --data DIR --seeds {record.seeds}{' --full' * record.full}`, "
            f"cutlayer {record.version}; seeds {seeds}; {len(record.results)} trainings, {hours:.2f} hours of training "
            "on one thread.",
            f"{_commits(record)} The results of every training are in `{file}`, published ones in "
            "`studies/results`.".strip(),
            study.full_settings if study.full else study.settings,
        )
    )


def _in_words(numbers: Sequence[int]) -> str:
    """Ascending numbers, of three or more in a row the first and the last.

    >>> _in_words([1, 2, 3, 4, 7, 8])
    '1 to 4, 7, 8'
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    words = (f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)
    return ", ".join(words) or "none"


def _commits(record: Record) -> str:
    """The record's provenance, and the commits that its results name themselves."""
    counts = Counter(result.commit for result in record.results if result.commit)
    named = ", ".join(f"{count} trainings at commit `{commit}`" for commit, count in counts.items())
    return f"{record.provenance} The results themselves name {named}.".strip() if named else record.provenance
