"""Every registered protection and attack against the whole suite."""

from dataclasses import replace

import pytest

from cutlayer import attacks, protections
from cutlayer.attacks.label import drawn_labels
from cutlayer.attacks.label.co_training import Trees, predict_by_trees
from cutlayer.consent import allowed
from cutlayer.data.sources import SOURCES
from cutlayer.models import BOTTOMS
from cutlayer.models.bottom_fits import FITS

from . import completion_suite, feature_suite, fit_suite, history_suite, model_suite, source_suite, suite, table

PROTECTIONS = table.PROTECTIONS | table.PROTECTIONS_OF_PLUGINS
FEATURES = table.FEATURES | table.FEATURES_OF_PLUGINS


def test_the_table_has_a_line_for_everything_registered():
    listed = table.ATTACKS.keys() | table.HISTORIES.keys() | table.COMPLETIONS.keys() | table.FEATURES.keys()
    for lines, registered in (
        (table.PROTECTIONS.keys(), protections.REGISTRY),
        (listed, attacks.REGISTRY),
        (table.FITS.keys(), FITS),
        (table.MODELS.keys(), BOTTOMS),
        (table.SOURCES.keys(), SOURCES),
    ):
        missing, unknown = registered.keys() - lines, lines - registered.keys()
        assert not missing, f"expected a line in tests/conformance/table.py for {sorted(missing)}"
        assert not unknown, f"expected a line in a catalogue for {sorted(unknown)} of tests/conformance/table.py"


@pytest.mark.parametrize(
    ("catalogue", "registered"),
    [(protections.catalogue, protections.REGISTRY), (attacks.catalogue, attacks.REGISTRY)],
    ids=["protections", "attacks"],
)
def test_no_two_have_one_name(catalogue, registered):
    named = [kind.name for kind in vars(catalogue).values() if isinstance(kind, type) and hasattr(kind, "name")]
    assert sorted(named) == sorted(registered)


@pytest.mark.parametrize("check", suite.PROTECTION_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", PROTECTIONS)
def test_protection(name, check):
    check(protections.REGISTRY[name], PROTECTIONS[name])


@pytest.mark.parametrize("check", suite.ATTACK_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", table.ATTACKS)
def test_attack(name, check):
    check(attacks.REGISTRY[name], table.ATTACKS[name])


@pytest.fixture
def _fewer_trees_and_steps(monkeypatch):
    """They reach the limits of their lines; against protections, which must keep a whole attack low, all are taken."""
    monkeypatch.setattr(predict_by_trees, "__defaults__", (Trees(folds=2, trees=20),))
    monkeypatch.setattr(drawn_labels, "TREES", replace(drawn_labels.TREES, folds=2, trees=30))


@pytest.mark.usefixtures("_fewer_trees_and_steps")
@pytest.mark.parametrize("check", history_suite.HISTORY_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", table.HISTORIES)
def test_attack_on_the_whole_run(name, check):
    check(attacks.REGISTRY[name], table.HISTORIES[name])


@pytest.mark.parametrize("check", completion_suite.COMPLETION_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", table.COMPLETIONS)
def test_completion(name, check):
    check(attacks.REGISTRY[name], table.COMPLETIONS[name])


@pytest.mark.parametrize("check", feature_suite.FEATURE_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", FEATURES)
def test_feature_attack(name, check):
    with allowed("cutlayer_published"):
        check(attacks.REGISTRY[name], FEATURES[name])


@pytest.mark.parametrize("check", fit_suite.FIT_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", table.FITS)
def test_fit(name, check):
    check(FITS[name], table.FITS[name])


@pytest.mark.parametrize("check", model_suite.MODEL_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", table.MODELS)
def test_bottom_model(name, check):
    check(name, table.MODELS[name])


@pytest.mark.parametrize("check", source_suite.SOURCE_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", table.SOURCES)
def test_source(name, check, tmp_path):
    check(SOURCES[name], table.SOURCES[name], tmp_path)
