"""Checks of a job that need no data: they run before anything is read or written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cutlayer.accounting import NoFormalGuarantee
from cutlayer.attacks import Resolved, resolve
from cutlayer.attacks.malicious import TAMPERINGS
from cutlayer.channel.address import check_fixed_port
from cutlayer.config import Job, near_miss, validated
from cutlayer.config.extras import check_extra
from cutlayer.config.job import COLUMNS
from cutlayer.config.party import LABEL_FREE, LabelFreeConfig, Role
from cutlayer.config.phases import FITTED_TOPS, Phase
from cutlayer.consent import check_allowed
from cutlayer.errors import ConfigError, CutlayerError
from cutlayer.models import check_models, imported_path
from cutlayer.models.fitting import check_fit
from cutlayer.parties.plan import plan_of
from cutlayer.protections.base import Asset, Protection
from cutlayer.protections.chain import Chain
from cutlayer.protections.hooks import acts_at, hooks_of
from cutlayer.results.run import RunKind
from cutlayer.training.attacked import by_active
from cutlayer.training.comparisons import alternative_job, compared_jobs
from cutlayer.training.run_ledger import chain_of

HIDING_LENGTHS = frozenset({"iso_noise", "marvell", "max_norm"})
"""Protections under which the length of a gradient says hardly anything of its row (tests/parties/test_weights.py)."""


def check_job(job: Job, only: str | None = None) -> None:
    """Validate models, protections, attacks and privacy budgets of a job.

    Nothing is imported, called, read or written.

    Args:
        job: The whole job, or a job with a single party's private part.
        only: Only party whose models are built in this process; `None` where all are.

    Raises:
        ConfigError: An unknown kind, key or name, a value out of range, or a user's module that was not allowed.
        NotApplicable: An attack or protection that does not fit the task.
        BudgetExceeded: The run would cost a party more than its budget.
    """
    check_models({name: job.bottom_of(name) for name in job.parties}, job.top)
    for where, path in imports_of(job, only).items():
        check_allowed(path, where)
    check_fitted_top(job)
    check_release(job)
    check_weights(job)
    check_split(job)
    check_label_free(job)
    check_alignment(job)
    check_repeated_ids(job)
    check_workers(job)
    check_devices(job)
    check_malicious(job)
    check_guards(job)
    check_logs(job)
    for name, party in job.parties.items():
        chain = chain_of(job, name)
        chain.account(plan_of(job, name))
        _check_gradients(job, chain)
        for protection in chain.protections:
            protection.check_peers(name, job.passives if name == job.active else (job.active,))
            if job.task not in protection.tasks:
                kinds = " or ".join(sorted(protection.tasks))
                where = f"parties.{name}.privacy.{protection.name}"
                raise ConfigError.expected(f"{where} on a task of kind {kinds}", job.task, "leave it out")
        if party.role == "active" and party.serving:
            wanted = f"no parties.{name}.serving at the active party, which releases no embedding"
            raise ConfigError.expected(wanted, party.serving, "set it at the passive parties")
        if party.role == "passive":
            _attacks_of(job, name, "passive")
        if party.role == "passive" and party.audit.fail_above.limits:
            raise ConfigError(
                f"parties.{name}.audit.fail_above: only the active party, which holds the labels, can measure label_auc"
            )
    attacks = _attacks_of(job, job.active, "active")
    _check_alternatives(job)
    audit = job.parties[job.active].audit
    if not (attacks.labels or attacks.histories) and audit.fail_above.limits:
        wanted = f"an attack that measures what parties.{job.active}.audit.fail_above limits"
        raise ConfigError.expected(
            wanted, f"none for task {job.task}", "name such an attack in audit.attacks, or leave the gate out"
        )


def check_malicious(job: Job) -> None:
    """Check that each malicious attack is named by the party whose secret it looks for.

    Raises:
        ConfigError: It is named by the other side.
    """
    for name, party in job.parties.items():
        for attack in party.audit.malicious:
            if by_active(attack) == (party.role == "active"):
                where, what = "a passive" if party.role == "active" else "the active", TAMPERINGS[attack].target
                raise ConfigError(
                    f"parties.{name}.audit.malicious: {attack} looks for {what}; name it in {where} party's audit"
                )
            if attack == "backdoor" and job.task == "regression":
                raise ConfigError(
                    f"parties.{name}.audit.malicious: backdoor needs classes; leave it out of a regression"
                )


def check_guards(job: Job) -> None:
    """Check that guards have what they judge, and what they need to know.

    Raises:
        ConfigError: All messages are single releases, several workers train, the party changes its own embeddings, or
            the number of classes is missing.
    """
    for name, party in job.parties.items():
        if party.guard is None:
            continue
        where, partners = f"parties.{name}.guard", job.passives if name == job.active else (name,)
        if all(Phase.RELEASE in job.phases_of(partner) for partner in partners):
            remedy = "leave it out: no gradient comes back, and nothing depends on one"
            raise ConfigError.expected(f"no {where} where rows are released once", "one", remedy)
        if job.train.workers > 1:
            raise ConfigError.expected(f"{where} with train.workers: 1", job.train.workers, "leave one of both out")
        changing = [each.name for each in chain_of(job, name).protections if acts_at(each, "embedding_out")]
        if changing and name != job.active:
            # Honest gradients then follow from the noise that was sent, which was an alarm in honest trainings.
            remedy = "leave one of both out; noise on embeddings bounds what a hijack can rebuild"
            raise ConfigError.expected(f"{where} without {changing[0]}", "both", remedy)
        senders = partners if name == job.active else (job.active,)
        bending = [each.name for sender in senders for each in chain_of(job, sender).protections if _bends(each)]
        if bending and not party.guard.protected:
            wanted = f"{where}.protected: true beside {bending[0]}"
            raise ConfigError.expected(wanted, "none", "what an honest partner sends then has signs of an attack")
        if job.task == "multiclass" and name != job.active and "classes" not in party.guard.model_fields_set:
            raise ConfigError.expected(f"{where}.classes in a multi-class task", "none", "state the number of classes")


def check_logs(job: Job) -> None:
    """Check that a log has something to write, and the packages that write it.

    Raises:
        ConfigError: It is at a passive party, which has neither curves nor a report, or a package is missing.
    """
    for name, party in job.parties.items():
        if party.log is None:
            continue
        if party.role == "passive":
            wanted = f"no parties.{name}.log at a passive party, which has neither curves nor a report"
            raise ConfigError.expected(wanted, "one", f"set it at {job.active}")
        for extra in party.log.model_dump(exclude_none=True):
            check_extra(extra, f"parties.{name}.log.{extra}")


def _bends(protection: Protection[Any]) -> bool:
    """Whether a protection changes an embedding, how it is learned, or a row's gradient beyond sign and length."""
    hooks = ("embedding_out", "local_loss", "gradient_out", "cut_gradient")
    acts = any(acts_at(protection, hook) for hook in hooks)
    return acts and protection.name != "max_norm"


def _attacks_of(job: Job, name: str, role: Role) -> Resolved:
    """The attacks of a party's audit; an error names the party's key, so that its line is found."""
    try:
        return resolve(job.parties[name].audit.catalogue, job.task, role)
    except ConfigError as failure:
        text = str(failure).replace("audit.attacks", f"parties.{name}.audit.attacks", 1)
        raise ConfigError(text) from None


def _check_alternatives(job: Job) -> None:
    """Validate the jobs of the alternatives, and that each has a name of its own in the report.

    Raises:
        CutlayerError: An error of `check_job`, after the name of the alternative.
    """
    labels = [str(kind) for kind in RunKind] + [run.label for run, _ in compared_jobs(job)]
    for name in job.alternatives:
        if labels.count(name) > 1:
            raise ConfigError(f"alternatives.{name}: another run of the report has this name; choose another")
        try:
            check_job(alternative_job(job, name))
        except CutlayerError as refused:
            raise type(refused)(f"alternatives.{name}: {refused}") from None


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


def check_release(job: Job) -> None:
    """Validate the parties that release once, and how they fit their bottom models before the release.

    Raises:
        ConfigError: An unknown party, a `fit` that is unused or does not suit the bottom model, or warm-up epochs
            without a single release.
    """
    release = job.train.release
    for name in release if isinstance(release, Mapping) else ():
        if name not in job.passives:
            raise ConfigError(f"train.release.{name}: no passive party of that name{near_miss(name, [*job.passives])}")
    if job.train.warmup_epochs and not any(Phase.RELEASE in job.phases_of(name) for name in job.passives):
        raise ConfigError.expected(
            "no train.warmup_epochs where no party releases once", job.train.warmup_epochs, "leave it out"
        )
    for name, party in job.parties.items():
        where = f"parties.{name}.fit"
        if name in job.passives and Phase.RELEASE in job.phases_of(name):
            check_fit(party.fit, job.bottom_of(name), job.train.warmup_epochs, where)
        elif party.fit is not None:
            remedy = f"write train.release: {{{name}: once}}" if name in job.passives else "leave it out"
            raise ConfigError.expected(f"no {where} but at a passive party that releases once", "one", remedy)


def check_fitted_top(job: Job) -> None:
    """Validate a top model that is fitted at once, and the columns that it reads.

    Raises:
        ConfigError: A passive party does not release its rows before the training, a model or protection that steps
            of an optimiser have to train, or a bottom model that would send the columns themselves.
    """
    kind, owner = job.model.top.get("kind"), job.active
    for name in job.passives:
        if job.bottom_of(name).get("kind") == COLUMNS:
            wanted = f"model.bottom.{name}: another kind than {COLUMNS}, which would send the columns themselves"
            raise ConfigError.expected(wanted, "it", "write {kind: linear, width: 32} with fit: {kind: sketch}")
    if kind in FITTED_TOPS - {"auto"} and Phase.LEAVE not in job.phases:
        remedy = "write train.release: once, without warmup_epochs, or model.top: {kind: mlp}"
        wanted = f"all passive parties to release once with model.top.kind {kind}, which no gradient trains"
        raise ConfigError.expected(wanted, "gradients", remedy)
    own = job.bottom_of(owner).get("kind")
    if (own == COLUMNS) != job.fits_top:
        if job.fits_top:
            wanted = (
                f"model.bottom.{owner}: {{kind: auto}} with model.top.kind {kind}, which reads the columns as they are"
            )
            raise ConfigError.expected(wanted, own, "leave it out, or write model.top: {kind: mlp}")
        wanted = f"model.bottom.{owner} of another kind with model.top.kind {kind}, whose steps train an embedding"
        raise ConfigError.expected(wanted, own, "write {kind: auto}")
    if not job.fits_top:
        return
    chain = chain_of(job, owner)
    if acting := _acting_at(chain, "embeddings_in"):
        wanted = (
            f"no parties.{owner}.privacy.{acting[0]} with model.top.kind {kind}, which is fitted for absent parties"
        )
        raise ConfigError.expected(wanted, "one", "leave it out")
    if "finetuned" in job.compare:
        wanted = f"compare without finetuned with model.top.kind {kind}, which is fitted for absent parties"
        raise ConfigError.expected(wanted, "it", "leave it out")


def check_weights(job: Job) -> None:
    """Validate weights of classes and rows.

    Raises:
        ConfigError: No classes, or labels that are drawn: their loss is corrected for the draws without weights.
    """
    if job.train.class_weight is not None and job.task == "regression":
        wanted = "train.class_weight with classes alone"
        raise ConfigError.expected(wanted, f"{job.train.class_weight} with task regression", "leave it out")
    weights = {
        "train.class_weight": job.train.class_weight,
        f"parties.{job.active}.weight": job.parties[job.active].weight,
    }
    stated = next((where for where, value in weights.items() if value is not None), None)
    if stated is None:
        return
    drawn = _acting_at(chain_of(job, job.active), "labels")
    if drawn:
        wanted = f"no {stated} with {drawn[0]}, whose loss is corrected for the draws"
        raise ConfigError.expected(wanted, weights[stated], "leave one of them out")


def check_split(job: Job) -> None:
    """Validate a split by a column, or by the labels.

    Raises:
        ConfigError: The column is that of the labels, weights or ids, whose values the split would reveal; there are
            no classes; or labels have a formal guarantee, which a split that may depend on them does not have.
    """
    split, owner = job.train.split, job.parties[job.active]
    reserved = {"label": owner.label, "weight": owner.weight, "id": owner.id and owner.id.columns}
    for key, value in reserved.items():
        if split.by is not None and split.by in (value if isinstance(value, tuple) else (value,)):
            wanted = f"train.split.by with another column than parties.{job.active}.{key}"
            raise ConfigError.expected(wanted, split.by, "partners learn which rows have its largest values")
    if not split.depends_on_labels:
        return
    if split.stratify and job.task == "regression":
        raise ConfigError.expected("train.split.stratify with classes alone", "task regression", "leave it out")
    chain, plan = chain_of(job, job.active), plan_of(job, job.active)
    formal = [LABEL_FREE] * (LABEL_FREE in owner.privacy)
    formal += [
        protection.name
        for protection in chain.protections
        if protection.protects is Asset.LABELS and not isinstance(protection.event(plan), NoFormalGuarantee)
    ]
    if formal:
        key, got, what, remedy = "stratify", "true", "by the labels", "leave one of them out"
        if split.by is not None:
            key, got, what = "by", split.by, "by a column that may follow the labels"
            remedy = (
                "if partners may know which rows have its largest values, whatever that shows of the labels, write "
                "train.split.public: true, and the guarantee is given that; else leave one of them out"
            )
        wanted = f"no train.split.{key} with {formal[0]}, whose guarantee a split {what} would void"
        raise ConfigError.expected(wanted, got, remedy)


def check_alignment(job: Job) -> None:
    """Validate how rows are identified.

    Raises:
        ConfigError: A number of rows to state, where the alignment shows every row.
    """
    for name, party in job.parties.items():
        if job.alignment == "plain" and party.id is not None and party.id.pad_to is not None:
            wanted = f"no parties.{name}.id.pad_to with alignment plain, which shows every row"
            raise ConfigError.expected(wanted, party.id.pad_to, "write alignment: psi")


def check_repeated_ids(job: Job) -> None:
    """Validate protections where ids repeat at the active party of a training by steps.

    Raises:
        ConfigError: One acts on gradients by the labels of rows, of which a partner's row then has several.
    """
    config = job.parties[job.active].id
    if not job.draws_batches or config is None or config.duplicates != "keep":
        return
    if acting := _acting_at(chain_of(job, job.active), "cut_gradient", "gradient_out"):
        wanted = f"no parties.{job.active}.privacy.{acting[0]} with id.duplicates: keep, where one gradient has several"
        raise ConfigError.expected(f"{wanted} rows' labels", "one", "write train.release: once, or duplicates: first")


def check_workers(job: Job) -> None:
    """Validate what several workers of each party cannot do.

    Raises:
        ConfigError: A party releases once or may be lost, a protection computes each row's gradient, or the lanes are
            not as many different addresses of the active party as there are workers after the first.
    """
    workers = job.train.workers
    _check_lanes(job)
    if workers == 1:
        return
    for name, party in job.parties.items():
        updating = _acting_at(chain_of(job, name), "update")
        for wrong in (
            f"parties.{name}.on_absent: {party.on_absent}" if party.on_absent != "stop" else "",
            f"train.release: once at {name}" if name in job.passives and Phase.RELEASE in job.phases_of(name) else "",
            f"parties.{name}.privacy.{updating[0]}, which updates the weights row by row" if updating else "",
        ):
            if wrong:
                raise ConfigError.expected(f"train.workers: 1 with {wrong}", workers, "leave one of them out")


def _check_lanes(job: Job) -> None:
    owner, workers = job.parties[job.active], job.train.workers
    for name in job.passives:
        if job.parties[name].lanes:
            wanted = f"no parties.{name}.lanes, since all parties connect to {job.active}"
            raise ConfigError.expected(wanted, ", ".join(job.parties[name].lanes), f"move them to parties.{job.active}")
    if owner.lanes and len(owner.lanes) != workers - 1:
        wanted = f"{workers - 1} parties.{job.active}.lanes, one for each worker after the first"
        raise ConfigError.expected(wanted, len(owner.lanes), "name one address for each, or none")
    for lane in owner.lanes:
        check_fixed_port(lane)
        if (owner.address, *owner.lanes).count(lane) > 1:
            wanted = f"an address of its own for each of the lanes and parties.{job.active}.address"
            raise ConfigError.expected(wanted, f"{lane} twice")


def check_devices(job: Job) -> None:
    """Validate the devices of the parties here; those of other organisations are theirs, and unknown.

    Raises:
        ConfigError: This machine has no such device, or a party has several workers, which divide a batch on CPUs.
    """
    for name, party in job.parties.items():
        if party.device == "cpu":
            continue
        from cutlayer.parties.device import device_of  # with PyTorch, which knows the devices

        device = device_of(party.device, f"parties.{name}.device")
        if device.type != "cpu" and job.train.workers > 1:
            wanted = f"parties.{name}.device: cpu with train.workers: {job.train.workers}"
            raise ConfigError.expected(wanted, party.device, "one worker has the GPU to itself")


def check_label_free(job: Job) -> None:
    """Validate the active party's condition that no message to a passive party may depend on a label.

    Raises:
        ConfigError: A passive party is sent gradients, or a passive party states the condition.
    """
    for name in job.passives:
        if LABEL_FREE in job.parties[name].privacy:
            wanted = f"{LABEL_FREE} at the active party, which has the labels"
            raise ConfigError.expected(wanted, f"it at {name}", f"move it to parties.{job.active}.privacy")
    privacy, where = job.parties[job.active].privacy, f"parties.{job.active}.privacy.{LABEL_FREE}"
    if LABEL_FREE not in privacy:
        return
    validated(LabelFreeConfig, privacy[LABEL_FREE], where)
    trained = [name for name in job.passives if not job.train.is_label_free(name)]
    if trained:
        when = "in warm-up epochs" if Phase.RELEASE in job.phases_of(trained[0]) else "in every step"
        remedy = "write train.release: once, without warmup_epochs"
        raise ConfigError.expected(f"{where}: no party that is sent gradients", f"{trained[0]} {when}", remedy)


def _check_gradients(job: Job, chain: Chain) -> None:
    """Raise if a protection acts on cut gradients although no party receives any."""
    if _sends_gradients(job):
        return
    for name in _acting_at(chain, "cut_gradient", "gradient_out"):
        where = f"parties.{chain.party}.privacy.{name}"
        raise ConfigError(f"{where}: nothing to protect, parties that release once get no gradient; remove it")


def _acting_at(chain: Chain, *hooks: str) -> list[str]:
    """Names of the protections that act at any of these hooks."""
    return [protection.name for protection in chain.protections if {*hooks} & {*hooks_of(protection)}]


def _sends_gradients(job: Job) -> bool:
    """Whether any party receives cut gradients."""
    return bool(job.train.warmup_epochs) or not all(Phase.RELEASE in job.phases_of(name) for name in job.passives)


def notes_of(job: Job) -> tuple[str, ...]:
    """Notes on the leaks of a valid job, each after the name of the setting that it is about.

    A term on the embeddings (`dcor`) protects no gradient: without another protection of labels, those that its party
    is sent reveal them.
    """
    notes = list[str]()
    if job.alignment == "plain":
        notes.append(
            f"alignment: plain shows {job.active} a digest of every id of the other parties, and with it all ids that "
            "can be guessed; write alignment: psi for parties in processes of their own"
        )
    owner = job.parties[job.active]
    if owner.unlabelled == "drop":
        notes.append(f"{job.active}.unlabelled: drop shows passive parties which of their rows have a label")
    if owner.weight is not None and _sends_gradients(job) and not HIDING_LENGTHS & {*owner.protections}:
        hiding = ", ".join(sorted(HIDING_LENGTHS))
        notes.append(
            f"{job.active}.weight: a row's weight multiplies its cut gradient, so that passive parties can read the "
            f"column {owner.weight!r} by the length; train.release: once sends none, and {hiding} hide it"
        )
    for name in job.parties:
        chain = chain_of(job, name)
        hidden = chain.acts_at("gradient_out", "labels")
        for protection in chain.protections:
            notes += [f"{protection.name}: {note}" for note in protection.notes(job.train.max_epochs)]
            if protection.protects is Asset.LABELS and acts_at(protection, "cut_gradient") and not hidden:
                notes.append(
                    f"{protection.name}: acts on embeddings only, and the cut gradients of the same party reveal every "
                    "label; add a protection of gradients or label_dp"
                )
    return tuple(notes)
