"""Building protections from what a party file says."""

import pytest

from cutlayer.errors import ConfigError
from cutlayer.protections import REGISTRY, build, build_chain
from cutlayer.protections.catalogue import LabelDP, MaxNorm


def test_builds_by_name():
    assert isinstance(build("label_dp", {"eps": 2}, "privacy"), LabelDP)
    assert isinstance(build("max_norm", None, "privacy"), MaxNorm)
    assert set(REGISTRY) >= {"label_dp", "max_norm"}


def test_builds_a_chain_in_rank_order():
    chain = build_chain("bank", "active", {"max_norm": None, "label_dp": {"eps": 1.0}}, "parties.bank.privacy")
    assert [protection.name for protection in chain.protections] == ["label_dp", "max_norm"]
    assert build_chain("bank", "active", {}, "parties.bank.privacy").protections == []


@pytest.mark.parametrize(
    ("privacy", "message"),
    [
        ({"lable_dp": {"eps": 1}}, r"parties\.bank\.privacy\.lable_dp: unknown protection; did you mean 'label_dp'\?"),
        ({"labelfree": None}, r"labelfree: unknown protection; did you mean 'label_free'\?"),
        ({"firewall": None}, r"unknown protection; known: budget, .*label_dp, label_free, marvell, max_norm"),
        (
            {"label_dp": {"eps": -1}},
            r"parties\.bank\.privacy\.label_dp\.eps: expected greater than or equal to 0, got -1",
        ),
        ({"label_dp": {"epsilon": 1}}, r"label_dp\.epsilon: unknown key"),
        ({"label_dp": None}, r"label_dp\.eps: missing"),
        ({"max_norm": {"strength": 2}}, r"max_norm\.strength: unknown key"),
    ],
)
def test_what_cannot_be_built_says_where_and_why(privacy, message):
    with pytest.raises(ConfigError, match=message):
        build_chain("bank", "active", privacy, "parties.bank.privacy")


def test_a_protection_on_the_wrong_side_is_refused():
    message = (
        r"expected parties\.telco\.privacy\.label_dp in the part of the active party, .* got the passive party telco"
    )
    with pytest.raises(ConfigError, match=message):
        build_chain("telco", "passive", {"label_dp": {"eps": 1.0}}, "parties.telco.privacy")


def test_a_protection_without_a_state_refuses_one():
    protection = build("label_dp", {"eps": 1.0}, "privacy")
    protection.load_state_dict({})
    with pytest.raises(ValueError, match="a state of label_dp, which has none"):
        protection.load_state_dict({"stages": 2})
