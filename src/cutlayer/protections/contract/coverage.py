"""Coverage of a party's protections: counts by kind of message, compared with the bytes that were sent."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from cutlayer.channel import Kind
from cutlayer.errors import NotApplied
from cutlayer.kernels.noise.aes import fingerprint
from cutlayer.lazy import Tensor
from cutlayer.protections.contract.base import Evidence
from cutlayer.protections.contract.tally import Tally

HOOK_OF: Mapping[Kind, str] = {
    Kind.EMBEDDING: "embedding_out",
    Kind.EVALUATION: "embedding_out",
    Kind.RELEASE: "embedding_out",
    Kind.GRADIENT: "gradient_out",
}
"""Messages whose tensor a protection may produce, and the hook that produces it."""
UNITS: Mapping[str, str] = {
    "labels": "rows",
    "embedding_out": "embeddings",
    "gradient_out": "gradients",
    "cut_gradient": "steps",
    "embeddings_in": "batches",
    "update": "steps",
    "local_loss": "steps",
}
"""Unit of the counts of each hook. Evidence states the first hook in this order at which a protection acts."""
_CONTENT_KEY = b"what a chain returned, not secret"[:32]


class Coverage:
    """Counts of what each protection covered, and digests of what the chain returned for sending.

    A message is covered when its tensor equals, byte for byte, what the chain returned for it. The check is made before
    the message leaves, so that a tensor which bypassed the protections is never sent. A digest costs one pass over the
    tensor at memory speed; it distinguishes contents and is not secret.

    Args:
        party: Name of the party whose protections are counted, for error messages.
    """

    def __init__(self, party: str) -> None:
        self.party = party
        self._covered: Counter[tuple[str, str]] = Counter()
        self._changed: Tally[tuple[str, str]] = Tally(defaultdict(int))
        self._pending: dict[tuple[str, str], tuple[str, Mapping[str, bool | Tensor]]] = {}
        self._released: set[str] = set()

    def count(self, protection: str, item: str, covered: int, changed: int | Tensor) -> None:
        """Add to the counts of one protection.

        Args:
            protection: Name of the protection.
            item: A hook, or the value of a message's kind.
            covered: How many the protection was applied to.
            changed: How many of those it changed; a tensor is read when evidence or a checkpoint needs it.
        """
        self._covered[protection, item] += covered
        self._changed.add((protection, item), changed)

    def returned(self, hook: str, peer: str, tensor: Tensor, changed: Mapping[str, bool | Tensor]) -> None:
        """Record the tensor that the chain returned for the next message of a hook.

        Args:
            hook: `embedding_out` or `gradient_out`.
            peer: The receiver; empty at a hook that has one receiver alone.
            tensor: The tensor that the chain returned.
            changed: Whether each protection that was applied changed the tensor, by name.
        """
        self._pending[hook, peer] = _digest(tensor), dict(changed)

    def released_once(self, tensor: Tensor, changed: Mapping[str, bool | Tensor]) -> None:
        """Record a batch of a single release, which is sent later, perhaps after a resume and more than once."""
        self._released.add(_digest(tensor))
        for protection, differs in changed.items():
            self.count(protection, Kind.RELEASE.value, 1, differs)

    def sending(self, kind: Kind, peer: str, tensor: Tensor, protections: Iterable[str]) -> None:
        """Compare a message with the tensor that the chain returned, and count it.

        Args:
            kind: Kind of the message, one of `HOOK_OF`.
            peer: The receiver.
            tensor: The tensor that is about to be sent.
            protections: Names of the protections that act at the message's hook.

        Raises:
            NotApplied: The chain did not return this tensor for this message.
        """
        hook = HOOK_OF[kind]
        digest = _digest(tensor)
        if kind is Kind.RELEASE:
            if digest not in self._released:
                raise self._bypassed(kind, peer, protections)
            return
        expected, changed = self._pending.pop((hook, peer if hook == "gradient_out" else ""), ("", {}))
        if digest != expected:
            raise self._bypassed(kind, peer, protections)
        for protection, differs in changed.items():
            self.count(protection, kind.value, 1, differs)

    def evidence(
        self, protection: str, hooks: Sequence[str], sent: Mapping[str, int], metrics: Mapping[str, float]
    ) -> Evidence:
        """Evidence of one protection, stated at the first of its hooks in the order of `UNITS`.

        Args:
            protection: Name of the protection.
            hooks: Hooks at which it acts.
            sent: Messages by kind, and rows or steps by hook, counted by the sender.
            metrics: The protection's own numbers.

        Raises:
            NotApplied: It covered fewer than were sent at one of its hooks.
        """
        for hook in hooks:
            covered, total = self._sum(self._covered, protection, hook), sum(sent[item] for item in items_of(hook))
            if covered < total:
                raise NotApplied(
                    f"{protection} of {self.party} covered {covered} of {total} at {hook}; "
                    "the run is not protected as configured"
                )
        stated = next(hook for hook in UNITS if hook in hooks)
        kinds = {item: self._covered[protection, item] for item in items_of(stated) if item != stated}
        return Evidence(
            protection,
            self.party,
            UNITS[stated],
            covered=int(self._sum(self._covered, protection, stated)),
            sent=sum(sent[item] for item in items_of(stated)),
            changed=int(self._sum(self._changed.sums, protection, stated)),
            metrics=metrics,
            kinds={kind: count for kind, count in kinds.items() if count},
        )

    def state_dict(self) -> dict[str, Any]:
        """State for a resume: the counts, and the digests of a single release."""
        return {
            "covered": {"/".join(key): count for key, count in self._covered.items()},
            "changed": {"/".join(key): count for key, count in self._changed.sums.items()},
            "released": sorted(self._released),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        self._covered = Counter(dict(_by_key(state["covered"])))
        self._changed = Tally(defaultdict(int, _by_key(state["changed"])))
        self._released = set(state["released"])

    def _sum(self, counter: Mapping[tuple[str, str], float], protection: str, hook: str) -> float:
        return sum(counter.get((protection, item), 0) for item in items_of(hook))

    def _bypassed(self, kind: Kind, peer: str, protections: Iterable[str]) -> NotApplied:
        names = ", ".join(protections)
        return NotApplied(
            f"{self.party}: the {kind} for {peer} is not what its protections returned ({names}); it was not sent; "
            "the run is not protected as configured"
        )


def items_of(hook: str) -> tuple[str, ...]:
    """Items that are counted at a hook: the kinds of message that it makes, or the calls of the hook itself.

    >>> items_of("gradient_out"), items_of("labels")
    (('gradient',), ('labels',))
    """
    return tuple(kind.value for kind, maker in HOOK_OF.items() if maker == hook) or (hook,)


def _by_key(counts: Mapping[str, int]) -> Iterator[tuple[tuple[str, str], int]]:
    """Counts of a checkpoint by protection and item."""
    for name, count in counts.items():
        protection, _, item = name.partition("/")
        yield (protection, item), int(count)


def _digest(tensor: Tensor) -> str:
    return f"{tuple(tensor.shape)} {tensor.dtype} {fingerprint(_CONTENT_KEY, tensor).hex()}"
