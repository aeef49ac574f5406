"""`cutlayer compare`: what it trains, takes over, settles and writes; the trainings are replaced by stated figures."""

from __future__ import annotations

import csv
import json
import re

import pytest

from cutlayer_sweep.compare import run
from cutlayer_sweep.compare.figure import Figure, Panel
from cutlayer_sweep.metrics import TrialMetrics
from cutlayer_sweep.seed_mean import SeedMean

FIGURES = {
    "": (0.90, 0.99),
    "max_norm": (0.89, 0.80),
    "label_dp": (0.88, 0.60),
    "iso_noise": (0.90, 0.99),
    "label_free": (0.9, 0.7),
}


@pytest.fixture
def trained(monkeypatch):
    """Every job that was trained, with stated figures."""
    jobs = []

    def measure(job, folder, options, leak, progress):
        jobs.append(job)
        assert options.keys.simulated
        folder.mkdir(parents=True)
        utility, leaked = FIGURES[next(iter(job.parties["bank"].privacy), "")]
        moved = 0.001 * job.train.seed * (1 if job.parties["bank"].privacy else -1)
        bounds = {"low": None, "high": None, "leak_low": None, "leak_high": None}
        found = {"where": "telco/gradient/norm", "epoch": 1, "seconds": 1.0}
        return TrialMetrics(
            utility=utility, test=utility + moved, leak=leaked - 0.001 * job.train.seed, **bounds, **found
        )

    monkeypatch.setattr(run, "measure", measure)
    return jobs


def compared(place, *protect, seeds=3, options=()):
    names = [part for name in protect for part in ("--protect", name)]
    return place.call("compare", place.file, *names, "--seeds", str(seeds), *options)


def test_settings_are_trained_by_seed_and_only_what_is_new_again(place, trained):
    place.change({"parties.bank.privacy": {"dcor": {"alpha": 0.1}}})
    settings = ("none", "max_norm", "label_dp eps=2 + max_norm", "as configured")
    FIGURES["dcor"] = FIGURES["max_norm"]
    assert compared(place, *settings, seeds=2).code == 0
    first = trained[0].train.seed
    assert [job.train.seed for job in trained] == [first] * 4 + [first + 1] * 4
    privacy = [dict(job.parties["bank"].privacy) for job in trained[:4]]
    assert privacy == [{}, {"max_norm": {}}, {"label_dp": {"eps": 2}, "max_norm": {}}, {"dcor": {"alpha": 0.1}}]
    trained.clear()
    assert compared(place, *settings, "iso_noise ratio=4.0", seeds=3).code == 0
    assert [job.train.seed for job in trained] == [first, first + 1] + [first + 2] * 5
    trained.clear()
    place.change({"train.epochs": 3})
    assert compared(place, "none", "max_norm", seeds=1).code == 0
    assert len(trained) == 2, "another job takes over no training"


def test_grades_are_compared_at_another_epsilon(place, trained):
    """A job of grades that trained end to end for each named protection refused `grade_dp`."""
    place.change(
        {
            "parties.bank.privacy": {"label_dp": {"eps": 1.0}},
            "parties.telco.privacy": {"grade_dp": {"epsilon": 8.0}},
            "parties.telco.fit": {"kind": "grade"},
            "model.bottom": {"bank": {"kind": "auto"}, "telco": {"kind": "grade", "least_rows": 0}},
            "model.top": {"kind": "auto"},
            "train": {"release": "once"},
        }
    )
    assert compared(place, "label_dp eps=1 + grade_dp epsilon=4", "label_dp eps=2", seeds=1).code == 0
    graded, noisy = trained
    assert graded.parties["telco"].privacy == {"grade_dp": {"epsilon": 4}}
    assert (graded.bottom_of("telco")["kind"], graded.train.release) == ("grade", "once")
    assert (noisy.bottom_of("telco")["kind"], noisy.train.release) == ("auto", "every_step")
    refused = compared(place, "grade_dp", "none", seeds=1)
    assert refused.code == 2
    assert "label_dp" in refused.err


@pytest.mark.parametrize("configured", ["labels", "both", "nothing"])
def test_the_words_of_init_are_settings_of_any_job(place, trained, configured):
    """Each is the job that `init --protect` writes, whichever of them the file has; its own is as it is."""
    graded, sketched = configured == "both", configured == "labels"
    given = {
        "parties.bank.coverage": 0.8,
        "parties.bank.privacy": {"label_dp": {"eps": 2.0}} if graded else {"label_free": None},
        "parties.telco.privacy": {"grade_dp": {"epsilon": 4.0}} if graded else {},
        "parties.telco.fit": {"kind": "grade", "least_z": 2.0} if graded else {"kind": "sketch", "map": "rotation"},
        "model.bottom": {
            "bank": {"kind": "auto"},
            "telco": {"kind": "grade"} if graded else {"kind": "linear", "width": 9},
        },
        "model.top": {"kind": "linear"},
        "train": {"release": "once", "seed": 3},
    }
    place.change(given if graded or sketched else {"parties.bank.privacy": {"max_norm": None}})
    assert compared(place, "both", "labels", "columns", "proof", "nothing", seeds=1).code == 0
    both, labels, columns, proof, nothing = trained
    assert (both.bottom_of("telco")["kind"], both.parties["telco"].fit["kind"]) == ("grade", "grade")
    assert both.parties["bank"].privacy == {"label_dp": {"eps": 2.0 if graded else 1.0}}
    assert both.parties["telco"].privacy == {"grade_dp": {"epsilon": 4.0 if graded else 8.0}}
    assert both.parties["telco"].fit.get("least_z") == (2.0 if graded else None)
    assert labels.parties["bank"].privacy == {"label_free": None}
    assert labels.parties["telco"].fit == {"kind": "sketch"} | ({"map": "rotation"} if sketched else {})
    assert labels.bottom_of("telco")["width"] == (9 if sketched else 128)
    assert not labels.parties["telco"].privacy
    assert [job.train.release for job in trained] == ["once", "once", "every_step", "once", "every_step"]
    interval = 0.8 if graded or sketched else 0
    assert [job.parties["bank"].coverage for job in trained] == [interval, interval, 0, interval, 0], (
        "by a model fitted at once"
    )
    assert proof.parties["telco"].fit == {"kind": "grade", "epsilon": 2.0}
    assert proof.parties["telco"].privacy == {"grade_dp": {"epsilon": 8.0}}
    assert columns.parties["telco"].privacy == {"dp_embedding": {"clip": 1.0, "epsilon": 8.0, "delta": 1e-5}}
    assert not any(each.privacy for each in (columns.parties["bank"], *nothing.parties.values()))


def test_a_private_fit_leaves_no_numbers_without_a_scale(place, trained):
    private = {"kind": "grade", "epsilon": 4.0}, {"numbers": {"scale": "none", "missing": "zero"}}
    given = dict(zip(("parties.telco.fit", "parties.telco.features"), private, strict=True))
    given |= {
        "parties.bank.privacy": {"label_dp": {"eps": 2.0}},
        "parties.telco.privacy": {"grade_dp": {"epsilon": 4.0}},
        "model.bottom": {"bank": {"kind": "auto"}, "telco": {"kind": "grade"}},
        "model.top": {"kind": "linear"},
        "train": {"release": "once"},
    }
    place.change(given)
    assert compared(place, "proof", "both", "labels", "nothing", seeds=1).code == 0
    proof, *others = trained
    assert proof.parties["telco"].fit == private[0]
    assert [job.parties["telco"].features.numbers.scale for job in trained] == [
        "none",
        "standard",
        "robust",
        "standard",
    ]
    assert not any("epsilon" in (job.parties["telco"].fit or {}) for job in others)


def test_differences_are_paired_and_judged(place, trained):
    document = compared(place, "none", "max_norm", "iso_noise ratio=4.0", options=("--json",)).document()
    found = {(each["setting"], each["other"], each["quantity"]): each for each in document["differences"]}
    leak = found["max_norm", "none", "leak"]
    assert leak["value"] == pytest.approx(-0.19)
    assert leak["half_width"] == pytest.approx(0.0, abs=1e-9), "what the seed moves in both alike is no noise"
    assert leak["verdict"] == "lower"
    test = found["iso_noise ratio=4.0", "none", "test"]
    assert test["value"] == pytest.approx(0.004)
    assert re.fullmatch(r"open at 3 seeds, about \d+ would settle it", test["verdict"])
    assert found["iso_noise ratio=4.0", "none", "leak"]["verdict"] == "equal"


def test_the_files_hold_the_same_and_an_alternative_has_its_name(place, trained):
    privacy = {"bank": {"privacy": {"max_norm": {}}}}
    name = "weak_1"
    place.change({"alternatives": {name: privacy}})
    assert compared(place, "none", name, seeds=2).code == 0
    folder = place.folder / "runs" / "job-compare"
    rows = list(csv.DictReader((folder / "compare.csv").read_text().splitlines()))
    assert [row["setting"] for row in rows] == ["none", "none", name, name]
    tex = (folder / "compare.tex").read_text()
    assert r"weak\_1 & " in tex
    assert tex.count(r"\begin{tabular}") == tex.count(r"\end{tabular}") == 2
    assert r"weak\_1 − none" in (folder / "compare.md").read_text()
    assert json.loads((folder / "compare.json").read_text())["failed"] == {}
    assert f">{name}</text>" in (folder / "compare.svg").read_text()


@pytest.mark.parametrize(
    ("protect", "fault"),
    [
        (("none",), "expected --protect twice or more, got 1"),
        (("none", "none"), "expected every --protect once, got 'none' twice"),
        (("none", "max_nrom"), "got 'max_nrom'; did you mean 'max_norm'?"),
        (("none", "lables"), "got 'lables'; did you mean 'labels'?"),
        (("none", "label_dp 1"), "expected settings as NAME=VALUE after the name, got '1'"),
        (("none", "label_dp eps=-1"), "--protect 'label_dp eps=-1': parties.bank.privacy.label_dp.eps"),
        (("none", "my_own:Kind"), "expected consent before it imports my_own:Kind, got none"),
    ],
)
def test_what_cannot_be_compared_is_named(place, trained, protect, fault):
    options = tuple(part for name in protect for part in ("--protect", name))
    place.refused(fault, verbs=("compare",), options=options)
    assert not trained


def test_a_pdf_is_one_that_readers_open():
    """Each object is where the table of the file says it is, and a name cannot end its text."""
    figure = Figure("a (b", ("x) Tj", "é −"), (Panel("test AUC", (SeedMean(0.9, 0.01, 3), None)),))
    content = figure.pdf()
    start = int(re.search(rb"startxref\n(\d+)\n%%EOF\n$", content)[1])
    assert content[start : start + 4] == b"xref"
    offsets = [int(each) for each in re.findall(rb"^(\d{10}) 00000 n", content, re.M)]
    assert [content[at : at + 7] for at in offsets] == [b"%d 0 obj" % number for number in range(1, 7)]
    assert rb"(x\) Tj)" in content
    assert "(é -)".encode("cp1252") in content
    length = int(re.search(rb"/Length (\d+)", content)[1])
    stream = content.partition(b"stream\n")[2]
    assert stream[length : length + 10] == b"\nendstream"


def test_a_notebook_gets_a_frame_and_a_figure(place, trained, monkeypatch):
    from cutlayer_sweep.compare import compare

    monkeypatch.chdir(place.folder)
    result = compare(place.file, ["none", "max_norm"], seeds=2)
    frame = result.to_frame()
    assert list(frame.groupby("setting").size()) == [2, 2]
    assert frame["leak"].between(0.5, 1).all()
    result.plot().save(place.folder / "figure.pdf")
    assert (place.folder / "figure.pdf").read_bytes().startswith(b"%PDF")
    assert result.plot()._repr_svg_().startswith("<svg")
