"""Notes of `cutlayer check` on the leaks that the settings of a job imply."""

import pytest

from cutlayer.jobs.check import check_job, notes_of
from tests.parties.runs import make_job


def notes(privacy, epochs=6):
    job = make_job(privacy=privacy, epochs=epochs)
    check_job(job)
    return notes_of(job)


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
