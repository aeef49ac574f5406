"""`cutlayer export`: one party's part of a trained model as files."""

from __future__ import annotations

from pathlib import Path

from cutlayer.cli.app import answer
from cutlayer.cli.verb import verb
from cutlayer.errors import ConfigError


@verb(consent=("model",))
def export(path: Path, *, party: str, out: Path, onnx: bool = False, json: bool = False) -> None:
    """Write one party's part of a trained model: weights, encoder, architecture and a model card.

    Args:
        party: The party whose part is written.
        out: The folder to create.
        onnx: Write the models as ONNX files too (extra onnx).

    Example: cutlayer export runs/job --party bank --out part
    """
    from cutlayer.config import near_miss
    from cutlayer.config.load import load_closed_job
    from cutlayer.training.folder import RunFolder

    folder = RunFolder.open(path)
    job = load_closed_job(folder.path / "job.yaml")
    if party not in job.parties:
        raise ConfigError(f"--party: no party is called {party!r}{near_miss(party, [*job.parties])}")
    from cutlayer.serving.export import ARCHITECTURE, CARD, Architecture, export_part
    from cutlayer.serving.model_card import model_card, write_card
    from cutlayer.serving.models import PartyModel

    model = PartyModel.load(job, folder, party)
    exported = export_part(job, model, out, onnx=onnx)
    write_card(model_card(job, folder, model, Architecture.read(out / ARCHITECTURE), exported), exported)
    files = sorted((*exported.files, CARD))
    answer(json, {"out": str(out), "files": files}, f"{out}: {', '.join(files)}")
