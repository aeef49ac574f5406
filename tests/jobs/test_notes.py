"""Notes of `cutlayer check` on the leaks that the settings of a job imply."""

import pytest

from cutlayer.config import Job, validated
from cutlayer.errors import ConfigError
from cutlayer.jobs.approval import _partner_sends
from cutlayer.jobs.cautions import leak_notes, readable_columns
from cutlayer.jobs.check import check_job
from tests.parties.runs import make_job, raw_job


def notes(privacy, epochs=6):
    job = make_job(privacy=privacy, epochs=epochs)
    check_job(job)
    return leak_notes(job)


def test_the_leak_of_a_divergence_is_that_of_all_epochs():
    (line,) = notes({"marvell": {"sum_kl": 0.16}})
    assert line.startswith("marvell: sum_kl 0.0267 per release, over 6 epochs, leaks an AUC of 0.611;")
    published, _ = notes({"marvell": {"sum_kl": 0.16, "form": "paper"}})
    assert published.startswith("marvell: sum_kl 0.16 per release, over 6 epochs, leaks an AUC of 0.756;")


@pytest.mark.parametrize("more", [{"marvell": {"sum_kl": 0.16}}, {"label_dp": {"eps": 1.0}}, {"max_norm": None}])
def test_dcor_without_a_protection_of_gradients_is_noted(more):
    (line,) = notes({"dcor": {"alpha": 0.01}})
    assert line.startswith("dcor: acts on embeddings only, and the cut gradients of the same party reveal every label")
    assert not [line for line in notes({"dcor": {"alpha": 0.01}, **more}) if line.startswith("dcor")]


def test_a_job_without_protections_has_no_notes():
    assert notes({}) == ()


@pytest.mark.parametrize("hiding", [{"max_norm": None}, {"iso_noise": {"ratio": 5.0}}, {"marvell": {"sum_kl": 0.16}}])
def test_weights_that_gradients_show_are_noted(hiding):
    def noted(privacy, **train):
        raw = raw_job(privacy=privacy, **train)
        raw["parties"]["bank"]["weight"] = "amount"
        job = validated(Job, raw, "")
        check_job(job)
        return [line for line in leak_notes(job) if "weight" in line]

    (line,) = noted({})
    assert line.startswith("bank.weight: a row's weight multiplies its cut gradient")
    assert "'amount'" in line
    assert noted({"noisy_gradient": {"scale": 0.1}}) == [line]
    assert noted({}, release="once") == []
    assert noted(hiding) == []


def test_plain_alignment_is_noted():
    job = make_job().model_copy(update={"alignment": "plain"})
    check_job(job)
    (line,) = leak_notes(job)
    assert line.startswith("alignment: plain shows bank a digest of every id")


def test_rows_without_a_label_are_noted():
    raw = raw_job()
    raw["parties"]["bank"]["unlabelled"] = "drop"
    (line,) = leak_notes(validated(Job, raw, ""))
    assert line == "bank.unlabelled: drop shows passive parties which of their rows have a label"


def test_a_stated_number_of_rows_needs_psi():
    raw = raw_job()
    raw["parties"]["telco"]["id"] = {"column": "id", "pad_to": 1000}
    check_job(validated(Job, raw, ""))
    with pytest.raises(ConfigError, match=r"no parties\.telco\.id\.pad_to with alignment plain"):
        check_job(validated(Job, {**raw, "alignment": "plain"}, ""))


def graded(**bottom):
    graded = {"kind": "grade", **bottom}
    raw = raw_job(
        release="once", privacy={"label_dp": {"eps": 1.0}}, bottom={"bank": {"kind": "auto"}, "telco": graded}
    )
    raw["model"]["top"] = {"kind": "auto"}
    raw["parties"]["telco"] |= {"fit": {"kind": "grade"}, "privacy": {"grade_dp": {"epsilon": 2.0}}}
    job = validated(Job, raw, "")
    check_job(job)
    return job


@pytest.mark.parametrize(("label_epsilon", "noted"), [(1.0, False), (4.0, False), (50.0, True)])
def test_labels_of_any_rates_are_noted_where_the_job_lets_them_pass(label_epsilon, noted):
    """The label owner writes the shared job: a partner that signs has to see what it agrees on."""
    job = graded(label_epsilon=label_epsilon)
    lines = [line for line in leak_notes(job) if line.startswith("model.bottom.telco.label_epsilon: 50 lets bank send")]
    assert len(lines) == noted
    assert f"labels that bank draws, at epsilon {label_epsilon:g} at most" in "".join(_partner_sends(job, "telco"))


def test_what_is_read_of_columns_by_grades_names_who_chooses_the_labels():
    said = readable_columns(graded(), "telco")
    assert "grades of other rows may tell of it through the model, without a bound" in said
    assert "bank chooses by its labels what grades are of" in said
    assert "whatever it knows" not in said


@pytest.mark.parametrize(
    ("fit", "privacy", "phrase"),
    [
        (
            {"map": "permutation"},
            {},
            "exactly from its release, without a known row: categories, and whole",
        ),
        (
            {"map": "permutation", "numbers": False},
            {},
            "categories, and the interval of each number",
        ),
        ({}, {}, "without a known row: most categories, if it is as wide as the encoded table"),
        ({}, {"dp_embedding": {"clip": 1.0, "epsilon": 8.0, "delta": 1e-5}}, "what the guarantee of telco allows"),
    ],
)
def test_what_is_read_of_columns_is_stated_with_the_least_knowledge(fit, privacy, phrase):
    raw = raw_job(release="once", bottom={"bank": {"kind": "auto"}, "telco": {"kind": "linear", "width": 8}})
    raw["model"]["top"] = {"kind": "auto"}
    raw["parties"]["telco"] |= {"fit": {"kind": "sketch", **fit}, "privacy": privacy}
    job = validated(Job, raw, "")
    check_job(job)
    assert phrase in readable_columns(job, "telco")
