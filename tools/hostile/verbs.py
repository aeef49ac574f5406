"""The verbs that read a file of somebody else, as they are called in a trial's folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from tools.hostile.watch import command
from tools.hostile.world import SKLEARN

_ALLOWED = ("--allow-model", SKLEARN)
_APART = {name: ("job.yaml", "--as", name, "--local", f"{name}.yaml") for name in ("bank", "telco")}
_COMMANDS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "check": ("job", ("check", "job.yaml")),
    "run": ("job", ("run", "job.yaml", "--out", "../out")),
    "sweep": ("job", ("sweep", "job.yaml", "--vary", "train.seed=1", "--trials", "1", "--out", "../sweep")),
    "report": ("", ("report", "{base}")),
    "dpia": ("", ("report", "{base}", "--for", "dpia")),
    "audit": ("", ("audit", "{base}")),
    "audit-allowed": ("", ("audit", "{base}", *_ALLOWED)),
    "predict": ("", ("predict", "{base}", "--out", "scores.csv")),
    "predict-allowed": ("", ("predict", "{base}", "--out", "scores.csv", *_ALLOWED)),
    "export": ("", ("export", "{base}", "--as", "bank", "--out", "exported")),
    "export-allowed": ("", ("export", "{base}", "--as", "bank", "--out", "exported", *_ALLOWED)),
    "check-run": ("", ("check", "{base}/job.yaml")),
    "report-passive": ("telco", ("report", "runs/job-telco")),
    "audit-passive": ("telco", ("audit", "runs/job-telco")),
    "check-as": ("telco", ("check", *_APART["telco"])),
    "preflight": ("telco", ("party", *_APART["telco"], "--preflight", "--timeout", "1")),
    "party-release": (
        "bank",
        ("party", *_APART["bank"], "--release", "telco.release", "--out", "../led", *_ALLOWED),
    ),
    "align-exchange": ("bank", ("align", *_APART["bank"], "--exchange", "../exchange", "--wait", "0")),
    "trail": ("telco", ("trail", "verify", ".cutlayer/telco.key.trail")),
    "trail-show": ("telco", ("trail", "show", ".cutlayer/telco.key.trail")),
    "ledger": ("telco", ("ledger", ".cutlayer")),
}
"""Working folder within the trial's, and arguments, by name."""


def verb_of(name: str, base: str, trial: Path) -> tuple[Callable[[], int], Path]:
    """What a verb runs, and the folder that it runs in.

    Args:
        name: Name of the verb.
        base: Folder of the file that it reads.
        trial: Folder of the trial.
    """
    if name == "load_part":
        return _load_part, trial
    if name == "serve":
        return lambda: _open_served(base), trial
    folder, arguments = _COMMANDS[name]
    return command(*(part.format(base=base) for part in arguments)), trial / folder


def _load_part() -> int:
    from cutlayer_export.part import load_part

    return _refused(lambda: load_part(Path("part")))


def _open_served(base: str) -> int:
    """What `serve` reads before it listens."""
    from cutlayer_serve.trained_party import TrainedParty

    return _refused(lambda: TrainedParty.open(Path(base), "bank"))


def _refused(read: Callable[[], object]) -> int:
    from cutlayer.errors import CutlayerError

    try:
        read()
    except CutlayerError as refusal:
        print(f"error {refusal}")  # noqa: T201
        return refusal.exit_code
    return 0
