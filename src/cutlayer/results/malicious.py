"""Gain of a party that does not follow the protocol."""

from __future__ import annotations

from typing import Literal

from pydantic import computed_field

from cutlayer.config.party import MaliciousName
from cutlayer.results.number import Bounded, Derived, Number


class MaliciousResult(Derived, Bounded):
    """The strongest attack on one link of a malicious training, beside that of the curious party in this run.

    Attributes:
        attack: What the malicious party did, as in `audit.malicious`.
        run: Label of the malicious training.
        attacker: The malicious party; of several the words for them.
        party: The passive party whose link it is; of colluding ones their names, joined by `+`.
        secret: What is learned, or decided: `predictions` of the active party.
        metric: `leak`, `r2`, or `success`: the share of held-out rows of other classes that get the attacker's class.
        value: The metric in the malicious training.
        low: Lower bound of the value (95 % interval).
        high: Upper bound of it.
        reader: Attack on the messages that reaches the value.
        curious: The metric in this run, in which all parties follow the protocol.
        curious_reader: Attack that reaches it.
        alarm: When the victim's guard raised the alarm, or `none`; empty where it has no guard. The training went on.
    """

    attack: MaliciousName
    run: str
    attacker: str
    party: str
    secret: Literal["labels", "features", "predictions"]
    metric: Literal["leak", "r2", "success"]
    value: Number
    reader: str
    curious: Number
    curious_reader: str
    alarm: str = ""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def gain(self) -> Number:
        """The value over that of the curious party; `None` where one of both is not known."""
        return None if self.value is None or self.curious is None else self.value - self.curious
