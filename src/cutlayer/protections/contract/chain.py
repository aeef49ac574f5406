"""The only caller of protections: orders their hooks, counts the covered messages, and refuses uncovered ones."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from cutlayer.accounting import Account, Occasion, Pairs, ReleaseLog, ReleasePlan, Slot
from cutlayer.accounting.slots import ReleaseKind
from cutlayer.channel import Kind
from cutlayer.config import BudgetConfig, Job
from cutlayer.config.phases import Phase
from cutlayer.errors import ConfigError, NotApplied
from cutlayer.lazy import Tensor, torch
from cutlayer.protections.contract.base import Context, Evidence, Protection
from cutlayer.protections.contract.coverage import HOOK_OF, Coverage
from cutlayer.protections.contract.hooks import HOOKS
from cutlayer.protections.contract.placement import CPU, Placement
from cutlayer.protections.contract.views import ActiveView, Mode, PassiveView, Update
from cutlayer.storage.row_tensors import number_differing

if TYPE_CHECKING:
    from cutlayer.models import BottomModel, Inputs


class Chain:
    """A party's protections, in the order of their ranks.

    Args:
        party: Name of the party.
        protections: Its protections, in any order.
        budget: Limit on the cost of all their releases together.

    Attributes:
        exceeding: See `Account.exceeding`; set before `setup`.
        redrawn: See `Account.redrawn`; set before `setup`.
        before_release: Called before a release is counted, to count the run or to refuse it; set before `setup`.

    Raises:
        ConfigError: Two of them cannot be combined, or one is given twice.
    """

    def __init__(self, party: str, protections: Sequence[Protection[Any]], budget: BudgetConfig | None = None) -> None:
        self.party, self.budget = party, budget
        self._account = Account(party, (), ReleasePlan(training=1))  # nothing is counted before `setup`
        self._plan: ReleasePlan | None = None
        self.exceeding: Callable[[int, int], None] | None = None
        self.redrawn: Callable[[str, int, int, int, int], None] | None = None
        self.before_release: Callable[[], None] | None = None
        # By rank, whatever the order in the file: noise that is added before clipping would be clipped away, and what
        # is scaled after it would no longer have the noise that its cost was computed for.
        self.protections = sorted(protections, key=lambda protection: (protection.rank, protection.name))
        self._coverage = Coverage(party)
        self._once = False
        self._summed: Mapping[str, Tensor] = {}
        self._placement = Placement()
        names = Counter(protection.name for protection in protections)
        for protection in protections:
            if names[protection.name] > 1:
                raise ConfigError.expected(f"{party}: {protection.name} once", "it twice", "keep one of them")
            clash = sorted(protection.excludes & names.keys())
            if clash:
                raise ConfigError.expected(
                    f"{party}: {protection.name} without {', '.join(clash)}", "both", "keep one of them"
                )

    def setup(self, context: Context, log: ReleaseLog | None = None) -> None:
        """Give every protection its context, and open the account.

        Args:
            context: The facts of the run that protections may use.
            log: log of this run's releases; counted in memory alone where `None`.

        Raises:
            BudgetExceeded: The plan, and the releases of runs that did not end, cost more than the budget.
            CheckpointError: The log is damaged, missing or of another run.
        """
        # The active party calls this twice: the hook `labels` needs the context, and protections such as DIMIP then
        # need the labels that it drew. So `setup` and `begin` must be repeatable.
        for protection in self.protections:
            protection.setup(context)
        self._account, self._context, self._plan = self.account(context.plan, log), context, context.plan
        self._account.exceeding, self._account.redrawn = self.exceeding, self.redrawn
        self._once, self._placement = context.plan.once, Placement(context.device)
        # Only now is it certain that the run may release anything: `begin` puts on record that it is about to.
        for protection in self.protections:
            protection.begin()

    def check_bottom(self, bottom: BottomModel, inputs: Inputs) -> None:
        """Test that the party's bottom model meets the assumptions of its protections' guarantees.

        Args:
            bottom: The bottom model; it is not changed.
            inputs: Columns that it reads.

        Raises:
            ConfigError: It mixes rows, and a protection needs every row embedded on its own.
        """
        from cutlayer.models.row_independence import check_row_independence

        for protection in self.protections:
            if protection.needs_row_independence:
                where = f"{protection.name} of {self.party}"
                check_row_independence(bottom, inputs, where, repeatable=protection.needs_no_random_draws)

    def account(self, plan: ReleasePlan, log: ReleaseLog | None = None) -> Account:
        """Open an account of the planned releases of these protections.

        Raises:
            ConfigError: An unknown event, or a budget that nothing can be counted against.
            BudgetExceeded: The plan costs more than the budget.
        """
        events = [protection.event(plan) for protection in self.protections]
        return Account(self.party, events, plan, self.budget, log)

    def faults(self, job: Job) -> Iterator[str]:
        """Faults of a job with these protections; see `Protection.faults`."""
        where = f"parties.{self.party}.privacy"
        for protection in self.protections if Phase.LEAVE in job.phases else ():
            if protection.acts_at("cut_gradient", "gradient_out"):
                unused = "nothing to protect, parties that release once get no gradient; remove it or train.release"
                yield f"{where}.{protection.name}: {unused}"
        for protection in self.protections:
            yield from protection.faults(job, self.party)
            if job.task not in protection.tasks:
                kinds = " or ".join(sorted(protection.tasks))
                yield f"expected {where}.{protection.name} on a task of kind {kinds}, got {job.task}; leave it out"

    def allow_repeats(self, epoch: int) -> None:
        """Accept that the schedule is repeated from an epoch on; see `Account.allow_repeats`."""
        self._account.allow_repeats(epoch)

    def close_account(self) -> None:
        """Record that the run has ended; see `Account.close`."""
        self._account.close()
        for protection in self.protections:
            protection.end()

    def labels(self, y: Tensor, ids: Tensor) -> Tensor:
        """Protect the training labels; counted in rows."""
        for protection in self._acting_at("labels"):
            drawn = protection.labels(y, ids)
            self._coverage.count(protection.name, "labels", len(y), number_differing(drawn, y))
            y = drawn
        return y

    @property
    def draws(self) -> tuple[str | None, ...]:
        """Names of the labels' draws, of each protection that draws labels; see `Protection.draws`."""
        return tuple(protection.draws for protection in self._acting_at("labels"))

    @property
    def transition(self) -> Tensor | None:
        """Transition matrix from the true labels to those that `labels` returns; see `Protection.transition`."""
        whole: Tensor | None = None
        for step in (protection.transition for protection in self._acting_at("labels")):
            if step is not None:
                whole = step if whole is None else whole @ step
        return whole

    def embedding_out(self, e: Tensor, view: PassiveView) -> Tensor:
        """Protect an embedding about to be released, and count it.

        Raises:
            BudgetExceeded: A row of it may not be released again.
        """
        if not e.shape[0]:
            return self._empty_result("embedding_out", "", e)
        changed = dict[str, bool | Tensor]()
        for protection in self._acting_at("embedding_out"):
            if (drawn := protection.row_draws(e, view)) is not None:
                self.charge_draws(*drawn, named=not view.numbered)
            released = self._placement.call(protection, protection.embedding_out, e, view)
            changed[protection.name] = protection.hides_changes or _differs(released, e)
            e = released
        # Charged here, not when it is sent: what the account refuses must not exist outside of this function.
        self._charge("embedding", view, e)
        if changed and self._once and view.mode is not Mode.SERVE:
            self._coverage.released_once(e, changed)
        elif changed:
            self._coverage.returned("embedding_out", "", e, changed)
        return e

    def charge_draws(self, name: str, pairs: Pairs, *, named: bool = True) -> None:
        """Count draws of rows' values before they are released; see `Account.charge_draws`."""
        self._account.charge_draws(name, pairs, named=named)

    def charge_unseen(self) -> None:
        """Count a release by batches of rows that are drawn by value; see `Account.charge_unseen`."""
        for draws in self._names_of_draws():
            self._account.charge_unseen(draws)

    def charge_refusal(self) -> None:
        """Count a refused prediction of rows that are drawn by value; see `Account.charge_refusal`."""
        for draws in self._names_of_draws():
            self._account.charge_refusal(draws)

    def embeddings_in(self, es: Mapping[str, Tensor], view: ActiveView) -> Mapping[str, Tensor]:
        """Change the embeddings before the top model sees them; counted in steps."""
        for protection in self._acting_at("embeddings_in"):
            seen = self._placement.call(protection, protection.embeddings_in, es, view)
            changed = reduce(operator.or_, (_differs(seen[name], es[name]) for name in es), False)
            self._coverage.count(protection.name, "embeddings_in", 1, changed)
            es = seen
        return es

    def cut_gradients(self, view: ActiveView) -> Mapping[str, Tensor]:
        """Task gradients, weighted, plus every protection's own term; independent of order.

        Raises:
            NotApplied: A protection has a term for a party that is sent no gradient.
        """
        weight, added = 1.0, dict[str, list[Tensor]]()
        for protection in self._acting_at("cut_gradient"):
            share, terms = protection.cut_gradient(self._placement.given(protection, view))
            terms = self._placement.back(terms)
            weight *= share
            lost = sorted(terms.keys() - view.task_gradients.keys())
            if lost:
                wrong = f"{protection.name} of {self.party} has a gradient for {', '.join(lost)}, which is sent none"
                raise NotApplied(wrong)
            for party, term in terms.items():
                added.setdefault(party, []).append(term)
            self._coverage.count(protection.name, "cut_gradient", 1, int(bool(terms) or share != 1.0))
        # One sum at the end, so that the order of the protections does not matter.
        scaled = view.task_gradients if weight == 1.0 else {k: weight * g for k, g in view.task_gradients.items()}
        self._summed = {
            party: torch.stack([g, *added[party]]).sum(0) if party in added else g for party, g in scaled.items()
        }
        return self._summed

    def gradient_out(self, g: Tensor, party: str, view: ActiveView) -> Tensor:
        """Protect the cut gradient about to be sent to `party`, and count it.

        Raises:
            NotApplied: `g` lacks the terms of this chain's `cut_gradients`.
            BudgetExceeded: A row of it may not be released again.
        """
        if not g.shape[0]:
            return self._empty_result("gradient_out", party, g)
        # Coverage compares what leaves with what this method returns: a gradient without the terms of `cut_gradients`
        # would count as covered if it were not refused here.
        if self._acting_at("cut_gradient") and self._summed.get(party) is not g:
            names = ", ".join(protection.name for protection in self._acting_at("cut_gradient"))
            raise NotApplied(f"{self.party}: the gradient for {party} lacks the terms of {names}; it was not sent")
        changed = dict[str, bool | Tensor]()
        for protection in self._acting_at("gradient_out"):
            sent = self._placement.call(protection, protection.gradient_out, g, party, view)
            changed[protection.name] = _differs(sent, g)
            g = sent
        self._charge("gradient", view, g, party)
        if self._is_changed_at("gradient_out"):
            self._coverage.returned("gradient_out", party, g, changed)
        return g

    def _empty_result(self, hook: str, peer: str, tensor: Tensor) -> Tensor:
        """Result of a hook where no row is sent: there is nothing to protect, and nothing to charge."""
        if self._is_changed_at(hook):
            covered = {protection.name: False for protection in self._acting_at(hook)}
            self._coverage.returned(hook, peer, tensor, covered)
        return tensor

    def sending(self, kind: Kind, peer: str, tensor: Tensor) -> None:
        """Called with the tensor of every message before it is sent; counts the covered messages.

        Args:
            kind: Kind of the message; kinds that no protection makes pass.
            peer: The receiver.
            tensor: The tensor that is about to be sent.

        Raises:
            NotApplied: It is not, byte for byte, what this chain returned for the message.
        """
        # Called where messages leave, not where they are protected: a tensor that took a path around the chain is
        # unknown here, and the run stops before it is sent.
        if kind in HOOK_OF and self._is_changed_at(HOOK_OF[kind]):
            hooks = ("cut_gradient", "gradient_out") if kind is Kind.GRADIENT else (HOOK_OF[kind],)
            names = [protection.name for hook in hooks for protection in self._acting_at(hook)]
            self._coverage.sending(kind, peer, tensor, names)

    def local_loss(self, view: PassiveView) -> Tensor | None:
        """Sum of the protections' own loss terms; counted in steps."""
        total: Tensor | None = None
        for protection in self._acting_at("local_loss"):
            term = self._placement.call(protection, protection.local_loss, view)
            self._coverage.count(protection.name, "local_loss", 1, int(term is not None))
            if term is not None:
                total = term if total is None else total + term
        return total

    def acts_at(self, *hooks: str) -> bool:
        """Whether a protection acts at one of some hooks, and so needs the whole batch there."""
        return any(self._acting_at(hook) for hook in hooks)

    @property
    def updates(self) -> bool:
        """Whether a protection sets the bottom model's gradients itself."""
        return bool(self._acting_at("update"))

    def update(self, update: Update, view: PassiveView) -> None:
        """Let a protection set the bottom model's gradients; counted in steps."""
        for protection in self._acting_at("update"):
            protection.update(update, view)
            self._coverage.count(protection.name, "update", 1, 1)
        gradients = [parameter.grad for parameter in update.bottom.parameters() if parameter.grad is not None]
        if gradients:
            # Before the optimiser takes the step: later embeddings depend on it.
            self._charge("update", view, torch.cat([gradient.flatten() for gradient in gradients]))

    def epoch_metrics(self) -> Mapping[str, float]:
        """Metrics of an epoch for the history, by `protection.metric`; called once after each epoch."""
        return {
            f"{protection.name}.{name}": value
            for protection in self.protections
            for name, value in protection.epoch_metrics().items()
        }

    def proof(self, sent: Mapping[str, int]) -> list[Evidence]:
        """Evidence of every protection, after a check against the messages that were sent.

        Args:
            sent: Messages by kind, and rows or steps by hook, counted by the sender and not by the chain.

        Raises:
            NotApplied: A protection covered fewer.
        """
        return [
            self._coverage.evidence(
                protection.name,
                [hook for hook in HOOKS if protection.acts_at(hook)],
                sent,
                {**protection.metrics(), **self._releases(protection)},
            )
            for protection in self.protections
        ]

    def _releases(self, protection: Protection[Any]) -> Mapping[str, float]:
        """Maximum number of releases and private steps of a row, which the ledger reads from the evidence."""
        releases = protection.acts_at("embedding_out", "gradient_out")
        counts = dict(self._account.release_counts()) if releases else {}
        return counts | (dict(self._account.step_counts()) if protection.acts_at("update") else {})

    def _charge(self, kind: ReleaseKind, view: PassiveView | ActiveView, released: Tensor, receiver: str = "") -> None:
        """Count a release by its own content, after the protections and before it is sent.

        Raises:
            BudgetExceeded: A row of it may not be released again.
        """
        if not self._account.counts(kind):
            return
        if self.before_release is not None:
            self.before_release()
        part = view.part if isinstance(view, PassiveView) else "train"
        receiver = receiver or next(iter(self._context.peers), "")
        slot = Slot(Occasion(kind, receiver, view.mode.value, part, view.epoch), view.step)
        self._account.charge(slot, self._context.noise.digest(released), len(view.rows))

    def state_dict(self) -> dict[str, Any]:
        """State for a resume: the counters and the state of every protection, and the counts so far."""
        # One snapshot between two steps, so that evidence after a resume equals that of an uninterrupted run. Pending
        # digests are not saved: no message is under way between two steps.
        return {
            "protections": {
                protection.name: {"counts": dict(protection.counts), "state": protection.state_dict()}
                for protection in self.protections
            },
            "coverage": self._coverage.state_dict(),
            "account": self._account.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        for protection in self.protections:
            saved = state["protections"][protection.name]
            protection.counts = {name: saved["counts"][name] for name in protection.counts}
            protection.load_state_dict(self._placement.given(protection, self._placement.back(saved["state"])))
        self._coverage.load_state_dict(state["coverage"])
        self._account.load_state_dict(state["account"])
        if self._plan is not None:  # of a run that lowered an epsilon: later draws of its rows cost that much
            self._account.restate([protection.event(self._plan) for protection in self.protections])

    def _is_changed_at(self, hook: str) -> bool:
        """Whether a protection changes the messages of a hook: by that hook, or by earlier terms."""
        return bool(self._acting_at(hook)) or (hook == "gradient_out" and bool(self._acting_at("cut_gradient")))

    def _names_of_draws(self) -> Iterator[str]:
        """Names of the draws of rows that are released by value."""
        for protection in self._acting_at("embedding_out"):
            if protection.draws is not None:
                yield protection.draws

    def _acting_at(self, hook: str) -> list[Protection[Any]]:
        return [protection for protection in self.protections if protection.acts_at(hook)]


def _differs(after: Tensor, before: Tensor) -> bool | Tensor:
    """Whether two tensors differ; on a device the answer stays there, so that no step waits for it."""
    if after is before or after.shape != before.shape:
        return after is not before
    return not torch.equal(after, before) if after.device.type == CPU else (after.detach() != before.detach()).any()
