"""The job: what all parties share, with the private parts that this machine has."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, field_validator, model_validator

from cutlayer.config.base import FrozenModel
from cutlayer.config.identities import identity
from cutlayer.config.names import AlternativeName, FederationName, JobName, PartyName
from cutlayer.config.party import AlternativeConfig, ApprovalsNeeded, PartyConfig
from cutlayer.config.phases import Phase, phases_of
from cutlayer.config.target import TARGETS, Target
from cutlayer.config.train import TrainConfig
from cutlayer.config.wording import did_you_mean

TaskKind = Literal["binary", "multiclass", "regression"]
TASKS = (*get_args(TaskKind), *TARGETS)
"""Words for `task`."""
Form = Literal["float16", "bfloat16", "int8"]
Reference = Literal["centralised", "alone", "undefended", "each", "uncompressed", "retrained", "finetuned", "boosting"]

BOTTOM: Mapping[str, Any] = {"kind": "auto", "hidden": [64, 32]}
TOP: Mapping[str, Any] = {"kind": "mlp", "hidden": [32]}
_OF_ALL_ROWS = ("alone", "undefended", "each", "uncompressed")
"""Baselines that are trained on all rows, by the active party's own columns or by the protocol."""
_SHARED = {"task", "target", "model", "train", "rows", "channel", "alignment", "approvals", "keep"}
"""Keys that all parties agree on, besides their names and roles."""
COLUMNS = "columns"
"""Kind of the active party's bottom model under them: its columns as they are."""


class ChannelConfig(FrozenModel):
    """Form of the messages between the parties.

    Attributes:
        compress: Form of the numbers of embeddings and gradients, after all protections; float32 without it.
    """

    compress: Form | None = None


class ModelConfig(FrozenModel):
    """Bottom and top model by kind; `bottom` may be a mapping from party to model.

    Attributes:
        bottom: Section of the bottom models.
        top: Section of the top model.
    """

    bottom: Mapping[str, Any] = Field(default_factory=lambda: dict(BOTTOM))
    top: Mapping[str, Any] = Field(default_factory=lambda: dict(TOP))

    @field_validator("bottom")
    @classmethod
    def _with_float_epsilons(cls, bottom: Mapping[str, Any]) -> Mapping[str, Any]:
        """`label_epsilon` as a number with a point: 1 and 1.0 are one epsilon, and one job."""

        def normal(section: Any) -> Any:
            stated = section.get("label_epsilon") if isinstance(section, Mapping) else None
            if type(stated) is int and abs(stated) < 2**53:
                return {**section, "label_epsilon": float(stated)}
            return section

        whole: Mapping[str, Any] = normal({key: normal(section) for key, section in bottom.items()})
        return whole

    def bottom_of(self, party: str) -> Mapping[str, Any]:
        """The bottom model's section for one party."""
        if "kind" in self.bottom:
            return self.bottom
        chosen: Mapping[str, Any] = self.bottom[party]
        return chosen


class Job(FrozenModel):
    """A job with the private parts that this machine has.

    Attributes:
        name: Name of the job, for the report: one line of 100 characters at most.
        federation: Name of the federation, which is part of the identities in the parties' certificates.
        task: Kind of the labels: `binary`, `multiclass` or `regression`; or `count`, `amount`, `severity`,
            `survival` or `ranking`, which stand for a regression with this target; see [tasks](../how-to/tasks.md).
        target: What the numbers of a regression are. `count`: whole numbers, 0 or more. `amount`: 0 or more.
            `severity`: above 0. `survival`: times until an event, or until a row was last seen without. All these are
            learned on the log link. `ranking`: grades, within groups. All but a plain `value` are for a top model that
            is fitted at once.
        parties: Parties by name; their order is that of the embeddings at the top model.
        rows: Rows of the run. `common`: those that all parties have. `all`: all of the active party; each is trained on
            and predicted with the passive parties that have it.
        alignment: How parties in processes of their own find their common rows: `psi`, a private set intersection, or
            `plain`, which shows the active party a digest of every id. With all parties in one process nothing crosses.
        approvals: Whether no party sends anything to another organisation before all of them have signed what the job
            reveals of them; see [approvals](../how-to/approve.md). With all parties in one process nothing is asked.
        channel: Form in which embeddings and gradients cross.
        model: Bottom and top models.
        train: Schedule of the training.
        compare: Baselines to train for the report (only in one process): `centralised` (all columns in one
            place), `alone` (the active party's own columns), `undefended`, `each` (each protection alone),
            `uncompressed`, `retrained` (without each single passive party), `finetuned` (the top model trained further
            after a departure), `boosting` (gradient boosting on all columns in one place).
        alternatives: The job with other protections, trained and audited as well: by name, and then by party.
        keep: How long a party uses what another one released, such as `400 days`: older files are refused, and
            `cutlayer exchange` deletes what it has of them. Models stay. No limit by default.
    """

    name: JobName = "job"
    federation: FederationName = "cutlayer"
    task: TaskKind = "binary"
    target: Target = "value"
    parties: Mapping[PartyName, PartyConfig]
    rows: Literal["common", "all"] = "common"
    alignment: Literal["psi", "plain"] = "psi"
    approvals: ApprovalsNeeded = "none"
    channel: ChannelConfig = ChannelConfig()
    model: ModelConfig = ModelConfig()
    train: TrainConfig = TrainConfig()
    compare: tuple[Reference, ...] = ()
    alternatives: Mapping[AlternativeName, Mapping[PartyName, AlternativeConfig]] = Field(default_factory=dict)
    keep: Annotated[str, Field(pattern=r"^[1-9][0-9]{0,4} days$")] | None = None

    @property
    def keep_days(self) -> int | None:
        """Number of days for which a release is used; `None` for no limit."""
        return None if self.keep is None else int(self.keep.split()[0])

    @model_validator(mode="before")
    @classmethod
    def _task_of_target(cls, raw: Any) -> Any:
        """Rewrite a task of numbers that are no plain values as a regression with this target."""
        task = raw.get("task") if isinstance(raw, Mapping) else None
        if isinstance(task, str) and task not in TASKS:
            known = f"task as one of {', '.join(TASKS)}, got {task!r:.40}"
            raise ValueError(known + did_you_mean(task, [*TASKS]))
        return {**raw, "task": "regression", "target": task} if task in TARGETS else raw

    def _faults(self) -> Iterator[str]:
        actives = [name for name, party in self.parties.items() if party.role == "active"]
        if len(actives) != 1:
            got = ", ".join(actives) or "none"
            yield f"exactly one party with role active, got {got}; the active party holds the labels"
        if len(self.parties) < 2:
            yield "at least one party with role passive, got none; without one there is nothing to train across"
        if self.parties[actives[0]].on_absent != "stop":
            yield f"no on_absent at {actives[0]}, the active party, got one; nothing runs without it"
        if "kind" not in self.model.bottom:
            yield from self._faults_of_bottoms()
        if len(set(self.identities.values())) < len(self.parties):
            yield "a different identity for each party, got one for several"
        yield from self._faults_of_repeated_ids()
        if self.rows == "all":
            yield from self._faults_of_all_rows()

    def _faults_of_bottoms(self) -> Iterator[str]:
        missing = [name for name in self.parties if name not in self.model.bottom]
        unknown = [name for name in self.model.bottom if name not in self.parties]
        if missing or unknown:
            yield _bottoms(missing, unknown) + (did_you_mean(unknown[0], missing) if unknown else "")
        for name, section in self.model.bottom.items():
            if not isinstance(section, Mapping):
                got = f"{section!r:.40}"
                form = section if isinstance(section, str) and section else "mlp"
                yield f"keys and values at model.bottom.{name}, got {got}; write {{kind: {form}}}"

    def _faults_of_repeated_ids(self) -> Iterator[str]:
        for name, party in self.parties.items():
            if party.id is None or party.id.duplicates != "keep":
                continue
            if party.role == "passive" or self.rows != "all":
                yield (
                    f"id.duplicates: keep at the active party of a job with rows: all, got it at {name}; take first, "
                    "latest or drop"
                )
            if party.report.subgroups:
                yield "no report.subgroups with id.duplicates: keep, got some; a group is of ids"
            if self.train.split.is_sent:
                yield "a split by_id with id.duplicates: keep, got one by a column or by the labels"

    def _faults_of_all_rows(self) -> Iterator[str]:
        """All rows need batches and parts of the split that no other row moves, and messages of a party's own rows."""
        defaults = TrainConfig()
        for key in ("warmup_epochs", "shuffle"):
            if (got := getattr(self.train, key)) != getattr(defaults, key):
                yield f"train.{key} at its default with rows: all, got {got}; write rows: common"
        if odd := [name for name in self.compare if name not in _OF_ALL_ROWS]:
            wanted = f"compare with {', '.join(_OF_ALL_ROWS)} alone with rows: all"
            yield f"{wanted}, got {', '.join(odd)}; other baselines need rows that all parties have"

    @model_validator(mode="after")
    def _schedule_follows(self) -> Job:
        """Tell the schedule what follows for it; for everybody else it is frozen.

        A top model that is fitted at once has no epochs, and those that are stated are of the baselines. A split of all
        rows is by their ids.
        """
        train = self.train.with_steps(taken=False) if self.fits_top else self.train
        if self.rows == "all" and not (train.split.is_sent or train.split.by_id):
            train = train.model_copy(update={"split": train.split.model_copy(update={"by_id": True})})
        object.__setattr__(self, "train", train)
        return self

    @property
    def attacked_kind(self) -> str:
        """Kind of the labels for attacks on them, of which none is defined for times that are censored."""
        return self.target if self.target == "survival" else self.task

    @property
    def draws_batches(self) -> bool:
        """Whether each row's batch is drawn by its id, since the parties of a training by steps have different rows."""
        return self.rows == "all" and not self.fits_top

    @property
    def fits_top(self) -> bool:
        """Whether the top model is fitted at once to all training rows, instead of by steps of an optimiser."""
        return Phase.FIT in self.phases

    @property
    def top(self) -> Mapping[str, Any]:
        """The section of the top model; `mlp` for `auto` where gradients have to train the bottom models."""
        return TOP if self.model.top.get("kind") == "auto" and not self.fits_top else self.model.top

    @property
    def active(self) -> str:
        """Name of the party that holds the labels."""
        return next(name for name, party in self.parties.items() if party.role == "active")

    @property
    def passives(self) -> tuple[str, ...]:
        """Names of the passive parties, in the job's order."""
        return tuple(name for name, party in self.parties.items() if party.role == "passive")

    def peers_of(self, party: str) -> tuple[str, ...]:
        """Names of the parties at the other ends of one party's links."""
        return self.passives if party == self.active else (self.active,)

    def with_parties(self, changes: Mapping[str, Mapping[str, Any]], **more: Any) -> Job:
        """A copy with other fields of some parties, by name, and of the job itself; they are not validated again."""
        parties = {name: party.model_copy(update=dict(changes.get(name, {}))) for name, party in self.parties.items()}
        return self.model_copy(update={"parties": parties, **more})

    def uncompared(self, changes: Mapping[str, Mapping[str, Any]] | None = None, **more: Any) -> Job:
        """As `with_parties`, of a run that is compared with no other."""
        return self.with_parties(changes or {}, compare=(), alternatives={}, **more)

    @property
    def keeps_best(self) -> bool:
        """Whether the run ends with its best epoch, which needs validation rows."""
        return self.train.keep == "best" and self.train.split.validation > 0

    @property
    def phases(self) -> tuple[Phase, ...]:
        """Phases of the active party, in their order."""
        return phases_of(self)

    def phases_of(self, party: str) -> tuple[Phase, ...]:
        """Phases of a party, in their order."""
        return phases_of(self, party)

    def is_label_free(self, party: str) -> bool:
        """Whether a passive party is sent nothing that depends on a label, drawn ones included, but the end of the run.

        Where all passive parties release once, they are sent no end either; see `phases_of`. Where one of them is sent
        drawn labels, none is label-free: whether, and when, it is asked for its rows depends on what the one makes of
        them, which their epsilon covers.
        """
        return self.train.is_label_free(party) and Phase.LABELS not in self.phases

    def bottom_of(self, party: str) -> Mapping[str, Any]:
        """The section of one party's bottom model; `mlp` for `auto` where gradients do not train the model freely.

        The active party's is `columns` under a top model that is fitted at once, which reads its columns as they are.
        `mlp` is for a passive party that releases once or has a `fit`, whose model gradients reach at most in warm-up,
        and for `dp_bottom`, which refuses dropout.
        """
        section = self.model.bottom_of(party)
        config = self.parties[party]
        if not isinstance(section, Mapping) or section.get("kind") != "auto":
            return section
        if self.fits_top and config.role == "active":
            return {"kind": COLUMNS}
        untrained = config.role == "passive" and (Phase.RELEASE in self.phases_of(party) or config.fit is not None)
        return {**section, "kind": "mlp"} if untrained or "dp_bottom" in config.protections else section

    @property
    def identities(self) -> dict[str, str]:
        """The identity that each party's certificate must state, by name."""
        return {name: party.identity or identity(self.federation, name) for name, party in self.parties.items()}

    def shared(self) -> dict[str, Any]:
        """The part that all parties share: no table, column, protection or audit.

        What has its default is left out: logs of releases are named by the digest, and a later version may have more.
        """
        whole = self.model_dump(mode="json", include=_SHARED, exclude_defaults=True)
        whole["parties"] = [[name, party.role] for name, party in self.parties.items()]
        if may_leave := {name: party.on_absent for name, party in self.parties.items() if party.on_absent != "stop"}:
            whole["on_absent"] = may_leave
        return whole

    def digest(self) -> str:
        """Hash of the shared part, compared at the handshake."""
        canonical = json.dumps(self.shared(), sort_keys=True, separators=(",", ":"))
        return hashlib.blake2b(canonical.encode(), digest_size=16).hexdigest()


def _bottoms(missing: list[str], unknown: list[str]) -> str:
    wrong = [f"{word} {', '.join(names)}" for word, names in (("none for", missing), ("unknown", unknown)) if names]
    return f"model.bottom with a kind, or with a model for each party, got {' and '.join(wrong)}"
