"""Bottom and top models by kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from cutlayer.config import FrozenModel, Job, registered, validated
from cutlayer.config.case import Case
from cutlayer.config.device import Precision
from cutlayer.config.job import COLUMNS
from cutlayer.config.phases import FITTED_TOPS, Phase
from cutlayer.errors import ConfigError
from cutlayer.models import catalogue
from cutlayer.models.auto import resolved_section as resolved_section
from cutlayer.models.auto import suits_rare_categories as suits_rare_categories
from cutlayer.models.base import BottomModel as BottomModel
from cutlayer.models.base import Dense as Dense
from cutlayer.models.base import FusedEmbedding as FusedEmbedding
from cutlayer.models.base import TopModel as TopModel
from cutlayer.models.base import collect_layer_outputs as collect_layer_outputs
from cutlayer.models.base import layers_of as layers_of
from cutlayer.models.precision import at_precision
from cutlayer.models.sections import BottomKind, TopKind
from cutlayer.plugins import IMPORTED_KINDS
from cutlayer.plugins import modules_of as modules_of
from cutlayer.problem.inputs import Inputs as Inputs

K = TypeVar("K", BottomKind, TopKind)


def _by_kind(of: type[K]) -> dict[str, K]:
    kinds = (kind for kind in vars(catalogue).values() if isinstance(kind, of))
    return {kind.config.model_fields["kind"].default: kind for kind in kinds}


BOTTOMS: Mapping[str, BottomKind] = _by_kind(BottomKind)
TOPS: Mapping[str, TopKind] = _by_kind(TopKind)


def build_bottom(
    raw: Mapping[str, Any], inputs: Inputs, where: str = "model.bottom", *, precision: Precision = "float32"
) -> BottomModel:
    """Build a bottom model from its section of the job, on the CPU.

    Args:
        raw: Section of the job.
        inputs: Columns that it reads.
        where: Dotted path of the section, for messages.
        precision: `train.precision` of the job.

    Raises:
        ConfigError: Unknown kind, unknown or invalid key, a kind that does not fit the party's columns, or a user's
            module that cannot be built.
    """
    kind, section = _section(BOTTOMS, raw, where)
    try:
        model: BottomModel = kind.build(section, inputs)
    except ConfigError as failure:
        raise ConfigError(f"{where}: {failure}") from failure.__cause__
    return at_precision(model, precision)


def build_top(
    raw: Mapping[str, Any],
    widths: Mapping[str, int],
    outputs: int,
    where: str = "model.top",
    may_leave: Sequence[str] = (),
    *,
    precision: Precision = "float32",
) -> TopModel:
    """Build a top model, on the CPU.

    Args:
        raw: Section of the job.
        widths: Number of columns of each embedding, by party in the job's order.
        outputs: Number of logits of the task.
        where: Dotted path of the section, for messages.
        may_leave: Parties that may leave, which are all but the active one.
        precision: `train.precision` of the job.
    """
    kind, section = _section(TOPS, raw, where)
    departing = (may_leave,) if kind.needs_departures else ()
    model: TopModel = kind.build(section, widths, outputs, *departing)
    return model if kind.is_fitted else at_precision(model, precision)


def bottom_of(job: Job, party: str, inputs: Inputs) -> BottomModel:
    """The bottom model of a party of a job, as `build_bottom` has it."""
    return build_bottom(job.bottom_of(party), inputs, f"model.bottom ({party})", precision=job.train.precision)


def top_of(job: Job, widths: Mapping[str, int], outputs: int) -> TopModel:
    """The top model of a job, as `build_top` has it."""
    return build_top(job.top, widths, outputs, may_leave=job.passives, precision=job.train.precision)


def check_models(bottoms: Mapping[str, Mapping[str, Any]], top: Mapping[str, Any]) -> None:
    """Validate the sections without building anything; `bottoms` by party."""
    for party, raw in bottoms.items():
        _section(BOTTOMS, raw, f"model.bottom ({party})")
    _section(TOPS, top, "model.top")


def stated_width(raw: Mapping[str, Any]) -> int | None:
    """Columns of a bottom model's embedding as its section states them; `None` of a user's model.

    Raises:
        ConfigError: Unknown kind, or unknown or invalid key.
    """
    kind, section = _section(BOTTOMS, raw, "model.bottom")
    return kind.width(section)


def is_fitted(raw: Mapping[str, Any]) -> bool:
    """Whether a top model is fitted at once, as a `FittedTop`, by its section; other kinds learn by gradient steps.

    Raises:
        ConfigError: Unknown kind.
    """
    return registered(TOPS, raw, "model.top").is_fitted


def imported_path(raw: Mapping[str, Any]) -> str | None:
    """The `package.module:Class` that building a model would import, by its section; `None` of a built-in kind.

    Empty for a section that is not checked and names none.
    """
    return str(raw.get("path", "")) if raw.get("kind") in IMPORTED_KINDS else None


def imports_of(job: Job, only: str | None = None) -> dict[str, str]:
    """Classes that building the models of a job imports, as `package.module:Class`, by path in the job.

    Args:
        job: Job with valid `model` sections.
        only: Only party whose models are built in this process; `None` where all are.
    """
    built = {f"model.bottom ({name})": job.bottom_of(name) for name in job.parties if only in (None, name)}
    if only in (None, job.active):
        built["model.top"] = job.top
    return {where: path for where, section in built.items() if (path := imported_path(section)) is not None}


def fitted_top_faults(case: Case) -> Iterator[str]:
    """A top model that is fitted at once reads the active party's columns, and rows that no gradient trains."""
    job, owner = case.job, case.job.active
    kind, own = job.model.top.get("kind"), job.bottom_of(owner).get("kind")
    top, absent = f"with model.top.kind {kind}", "which is fitted for absent parties"
    for name in job.passives:
        if job.bottom_of(name).get("kind") == COLUMNS:
            wanted = f"expected model.bottom.{name}: another kind than {COLUMNS}, which would send the columns"
            yield f"{wanted} themselves, got it; write {{kind: linear, width: 32}} with fit: {{kind: sketch}}"
    if kind in FITTED_TOPS - {"auto"} and Phase.LEAVE not in job.phases:
        remedy = "write train.release: once, without warmup_epochs, or model.top: {kind: mlp}"
        yield f"expected all passive parties to release once {top}, which no gradient trains, got gradients; {remedy}"
    if job.fits_top and own != COLUMNS:
        wanted = f"expected model.bottom.{owner}: {{kind: auto}} {top}, which reads the columns as they are"
        yield f"{wanted}, got {own}; leave it out, or write model.top: {{kind: mlp}}"
    if own == COLUMNS and not job.fits_top:
        wanted = f"expected model.bottom.{owner} of another kind {top}, whose steps train an embedding"
        yield f"{wanted}, got {own}; write {{kind: auto}}"
    for acting in case.acting_protections(owner, "embeddings_in") if job.fits_top else ():
        yield f"expected no parties.{owner}.privacy.{acting} {top}, {absent}, got one; leave it out"
    if job.fits_top and "finetuned" in job.compare:
        yield f"expected compare without finetuned {top}, {absent}, got it; leave it out"


def _section(kinds: Mapping[str, K], raw: Mapping[str, Any], where: str) -> tuple[K, FrozenModel]:
    kind = registered(kinds, raw, where)
    return kind, validated(kind.config, raw, where)
