"""Every registered protection and attack against the whole suite."""

import pytest

from cutlayer import attacks, protections

from . import completion_suite, feature_suite, history_suite, suite, table


def test_the_table_has_a_line_for_everything_registered():
    assert table.PROTECTIONS.keys() == protections.REGISTRY.keys()
    listed = table.ATTACKS.keys() | table.HISTORIES.keys() | table.COMPLETIONS.keys() | table.FEATURES.keys()
    assert listed == attacks.REGISTRY.keys()
    assert all(name == known.name for name, known in (protections.REGISTRY | attacks.REGISTRY).items())


@pytest.mark.parametrize("check", suite.PROTECTION_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", table.PROTECTIONS)
def test_protection(name, check):
    check(protections.REGISTRY[name], table.PROTECTIONS[name])


@pytest.mark.parametrize("check", suite.ATTACK_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", table.ATTACKS)
def test_attack(name, check):
    check(attacks.REGISTRY[name], table.ATTACKS[name])


@pytest.mark.parametrize("check", history_suite.HISTORY_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", table.HISTORIES)
def test_attack_on_the_whole_run(name, check):
    check(attacks.REGISTRY[name], table.HISTORIES[name])


@pytest.mark.parametrize("check", completion_suite.COMPLETION_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", table.COMPLETIONS)
def test_completion(name, check):
    check(attacks.REGISTRY[name], table.COMPLETIONS[name])


@pytest.mark.parametrize("check", feature_suite.FEATURE_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", table.FEATURES)
def test_feature_attack(name, check):
    check(attacks.REGISTRY[name], table.FEATURES[name])
