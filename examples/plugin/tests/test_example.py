"""The attack and the protection pass the checks that each of Cutlayer's own passes."""

from cutlayer_example.nearest import Nearest
from cutlayer_example.noisy_sign import NoisySign

from cutlayer.testing import check_attack, check_protection


def test_the_attack_reads_an_undefended_run_and_nothing_of_random_labels() -> None:
    check_attack(Nearest, {"gradient": 0.95})


def test_the_protection_lowers_the_attack_that_it_is_for() -> None:
    check_protection(NoisySign, {"scale": 0.5}, lowers=[("norm", "gradient", 0.55)], refused=[{}, {"scale": -1.0}])
