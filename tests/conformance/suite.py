"""The checks of attacks on labels and of protections: those of `cutlayer.testing`, and one of departures."""

from cutlayer.testing import toy
from cutlayer.testing.attack_checks import *  # noqa: F403 (each check is a name of the suite)
from cutlayer.testing.attack_checks import ATTACK_CHECKS as ATTACK_CHECKS
from cutlayer.testing.attack_checks import last_bit_moved as last_bit_moved
from cutlayer.testing.faults import reads_more as reads_more
from cutlayer.testing.faults import states_its_paper as states_its_paper
from cutlayer.testing.protection_checks import *  # noqa: F403
from cutlayer.testing.protection_checks import PROTECTION_CHECKS as PUBLIC
from cutlayer.testing.protection_checks import ProtectionClass, chains

from . import departure
from .table import ProtectionCase


def works_after_a_departure(protection: ProtectionClass, case: ProtectionCase) -> None:
    """A defence against departures: a party that leaves costs an undefended model much, and a defended one little."""
    if case.loses is None:
        return
    before, after = departure.accuracies(toy.undefended)
    assert before - after > 0.15, "the toy loses nothing without it"
    whole, left = departure.accuracies(chains(protection, case))
    assert whole - left < case.loses, f"{whole:.3f} to {left:.3f}, undefended {before:.3f} to {after:.3f}"
    assert before - whole < 0.04, f"{whole:.3f} with all parties, undefended {before:.3f}"


PROTECTION_CHECKS = (*PUBLIC, works_after_a_departure)
