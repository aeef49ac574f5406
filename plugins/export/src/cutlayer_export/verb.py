"""`cutlayer export`: one party's part of a trained model as files."""

from __future__ import annotations

from pathlib import Path

from cutlayer.cli.app import print_result
from cutlayer.cli.verb import consenting
from cutlayer.errors import ConfigError


@consenting("model", "path")
def export(
    path: Path,
    *,
    name: str,
    out: Path,
    onnx: bool = False,
    registry: str | None = None,
    model: str | None = None,
    json: bool = False,
) -> None:
    """Write one party's part of a trained model: weights, encoder, architecture and a model card.

    Args:
        name: The party whose part is written.
        out: The folder to create.
        onnx: Write the models as ONNX files too (extra onnx).
        registry: Add the label owner's part to MLflow's registry at this tracking URI, with --model (extra mlflow).
        model: The name of the model in the registry.

    Example: cutlayer export runs/job --as bank --out part
    """
    files, version = _written(path, name, out, onnx=onnx, registry=registry, model=model)
    lines = [f"{out}: {', '.join(files)}"]
    if version is not None:
        lines.append(f"{model}: version {version} in the registry at {registry}")
    print_result(json, {"out": str(out), "files": files, "version": version}, *lines)


def _written(
    path: Path, party: str, out: Path, *, onnx: bool, registry: str | None, model: str | None
) -> tuple[list[str], str | None]:
    """Names of the files that were written, and the version in the registry, if it was asked for."""
    from cutlayer.config import near_miss
    from cutlayer.config.load import load_closed_job
    from cutlayer.training.folder import RunFolder

    folder = RunFolder.open(path)
    job = load_closed_job(folder.path / "job.yaml")
    if party not in job.parties:
        raise ConfigError(f"--as: no party is called {party!r}{near_miss(party, [*job.parties])}")
    if (registry is None) != (model is None) or (registry is not None and party != job.active):
        wanted = f"--registry and --model together, for {job.active}, whose part predicts"
        raise ConfigError.expected(wanted, f"others for {party}", "leave them out, or give both")
    if registry is not None:
        from cutlayer.config.extras import check_extra, load_extra_part
        from cutlayer.config.log import checked_registry

        check_extra("mlflow")
        register, registry = load_extra_part("mlflow", "register", "--registry"), checked_registry(registry)
    from cutlayer.serving.models import PartyModel
    from cutlayer_export.model_card import model_card, write_card
    from cutlayer_export.part import ARCHITECTURE, CARD, Architecture, export_part

    trained = PartyModel.load(job, folder, party)
    exported = export_part(job, trained, out, onnx=onnx)
    write_card(model_card(job, folder, trained, Architecture.read(out / ARCHITECTURE), exported), exported)
    files = sorted((*exported.files, CARD))
    version = None
    if registry is not None and model is not None:
        version = register(registry, model, out, job.name, folder.path.name)
    return files, version
