"""Attacks by parties that send something else than the protocol has them send: one file each, one line here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cutlayer.attacks.malicious.backdoor import Backdoor
from cutlayer.attacks.malicious.base import Tampering
from cutlayer.attacks.malicious.chosen_labels import ChosenLabels
from cutlayer.attacks.malicious.hijack import Hijack
from cutlayer.attacks.malicious.probing import Probing
from cutlayer.attacks.malicious.replay import Replay
from cutlayer.attacks.malicious.scaling import Scaling
from cutlayer.attacks.malicious.swap import Swap
from cutlayer.config.case import Case

TAMPERINGS: Mapping[str, type[Tampering]] = {
    kind.name: kind for kind in (Hijack, ChosenLabels, Probing, Replay, Scaling, Swap, Backdoor)
}
"""All malicious attacks by their name in `audit.malicious`."""


def is_by_active_party(attack: str) -> bool:
    """Whether the active party makes an attack; else all passive ones at once."""
    return TAMPERINGS[attack].target == "features"


def malicious_faults(case: Case) -> Iterator[str]:
    """Each malicious attack is named by the party whose secret it looks for."""
    for name, party in case.job.parties.items():
        for attack in party.audit.malicious:
            if is_by_active_party(attack) == (party.role == "active"):
                where, what = "a passive" if party.role == "active" else "the active", TAMPERINGS[attack].target
                yield f"parties.{name}.audit.malicious: {attack} looks for {what}; name it in {where} party's audit"
            if attack == "backdoor" and case.job.task == "regression":
                yield f"parties.{name}.audit.malicious: backdoor needs classes; leave it out of a regression"
