"""`cutlayer export`: one party's part of a trained model as files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cutlayer.cli.app import Json, answer, app
from cutlayer.cli.report import RunPath
from cutlayer.cli.run import AllowModel
from cutlayer.errors import ConfigError

Party = Annotated[str, typer.Option("--party", help="The party whose part is written.", show_default=False)]
Onnx = Annotated[bool, typer.Option("--onnx", help="Write the models as ONNX files too (extra onnx).")]
Out = Annotated[Path, typer.Option("--out", help="The folder to create.", show_default=False)]


@app.command()
def export(
    path: RunPath, party: Party, out: Out, onnx: Onnx = False, allow_model: AllowModel = None, json: Json = False
) -> None:
    """Write one party's part of a trained model: weights, encoder, architecture, programs and a model card."""
    from cutlayer.config import near_miss
    from cutlayer.config.load import load_job
    from cutlayer.training.folder import RunFolder

    folder = RunFolder.open(path)
    job = load_job(folder.path / "job.yaml")
    if party not in job.parties:
        raise ConfigError(f"--party: no party is called {party!r}{near_miss(party, [*job.parties])}")
    from cutlayer.models import allowed_models
    from cutlayer.report.model_card import model_card, write_card
    from cutlayer.serving.export import ARCHITECTURE, CARD, Architecture, export_part
    from cutlayer.serving.models import PartyModel

    with allowed_models(*allow_model or ()):
        model = PartyModel.load(job, folder, party)
        exported = export_part(job, model, out, onnx=onnx)
    write_card(model_card(job, folder, model, Architecture.read(out / ARCHITECTURE), exported), exported)
    files = sorted((*exported.files, CARD))
    left_out = [f"  {name} was left out: {why}" for name, why in exported.left_out.items()]
    document = {"out": str(out), "files": files, "left_out": dict(exported.left_out)}
    answer(json, document, f"{out}: {', '.join(files)}", *left_out)
