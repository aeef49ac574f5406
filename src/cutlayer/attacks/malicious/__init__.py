"""Attacks by parties that send something else than the protocol has them send: one file each, one line here."""

from __future__ import annotations

from collections.abc import Mapping

from cutlayer.attacks.malicious.backdoor import Backdoor
from cutlayer.attacks.malicious.base import Tampering
from cutlayer.attacks.malicious.chosen_labels import ChosenLabels
from cutlayer.attacks.malicious.hijack import Hijack
from cutlayer.attacks.malicious.probing import Probing
from cutlayer.attacks.malicious.replay import Replay
from cutlayer.attacks.malicious.scaling import Scaling
from cutlayer.attacks.malicious.swap import Swap

TAMPERINGS: Mapping[str, type[Tampering]] = {
    kind.name: kind for kind in (Hijack, ChosenLabels, Probing, Replay, Scaling, Swap, Backdoor)
}
"""All malicious attacks by their name in `audit.malicious`."""
