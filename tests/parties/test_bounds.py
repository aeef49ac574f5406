"""What a peer can make a party allocate or wait for in the handshake, and state at the end."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cutlayer.channel import Kind, Message, receiving
from cutlayer.channel.codec import decode, encode
from cutlayer.config import validated
from cutlayer.config.job import Job
from cutlayer.errors import PeerLost, ProtocolError
from cutlayer.jobs.summary import protection_results
from cutlayer.models import BOTTOMS, build_bottom, stated_width
from cutlayer.parties.session.evidence import evidence_text, parse_evidence
from cutlayer.protections.contract.base import Evidence
from cutlayer.training.run_ledger import passive_ledger
from tests.conformance.model_suite import INPUTS
from tests.conformance.table import MODELS
from tests.parties.mutants import tamper, with_fields
from tests.parties.runs import ACTIVE, PASSIVES, raw_job, run, tables, unaudited_job

TELCO = PASSIVES[0]
GIVEN = tables()
ROWS = GIVEN[TELCO].num_rows
Chunks = list[tuple[torch.Tensor, bool]]


def chunks(name: str, parts: Chunks) -> Callable[[Message], list[Message]]:
    """These chunks in place of the first one, through the real codec."""

    def change(message: Message) -> list[Message]:
        out = []
        for number, (tensor, last) in enumerate(parts):
            fields = {"last": last}
            stamp = (message.kind, message.sender, message.receiver, message.run, -1, -1, message.sequence + number)
            out.append(decode(encode(Message(*stamp, tensors={name: tensor}, fields=fields))))
        return out

    return change


def ids(rows: int, width: int = 16) -> torch.Tensor:
    return torch.zeros(rows, width, dtype=torch.uint8)


BAD_IDS: dict[str, tuple[Chunks, str]] = {
    "two widths": ([(ids(receiving.MESSAGE_ROWS), False), (ids(8, 8), True)], "ids of (at most|16 columns)"),
    "another width": ([(ids(ROWS, 8), True)], f"ids of 16 columns from {TELCO}, got 8"),
    "no width": ([(ids(ROWS, 0), True)], f"ids of 16 columns from {TELCO}, got 0"),
    "more than it said": ([(ids(ROWS + 1), True)], rf"ids of at most {ROWS} rows in all from {TELCO}, got {ROWS + 1}"),
    "fewer than it said": ([(ids(ROWS - 1), True)], rf"{ROWS} ids from {TELCO}, as it stated, got {ROWS - 1}"),
    "an empty chunk first": ([(ids(0), False), (ids(ROWS), True)], r"rows in all but the last ids"),
    "a small chunk first": ([(ids(5), False), (ids(ROWS - 5), True)], r"rows in all but the last ids"),
    "none": ([(ids(0), True)], rf"{ROWS} ids from {TELCO}"),
}


@pytest.mark.parametrize("wrong", BAD_IDS)
def test_ids_are_as_many_and_as_wide_as_was_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    parts, result = BAD_IDS[wrong]
    tamper(monkeypatch, Kind.IDS, chunks("digests", parts))
    with pytest.raises(ProtocolError, match=result):
        run(unaudited_job(), GIVEN, tmp_path)


def test_chunks_of_two_widths_are_no_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiving, "MESSAGE_ROWS", 100)
    tamper(monkeypatch, Kind.IDS, chunks("digests", [(ids(100), False), (ids(100, 8), False)]))
    with pytest.raises(ProtocolError, match=f"ids of 16 columns from {TELCO}, got 8"):
        run(unaudited_job(), GIVEN, tmp_path)


def test_a_long_table_still_comes_in_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run(unaudited_job(), GIVEN, tmp_path / "a").active.step_losses
    monkeypatch.setattr(receiving, "MESSAGE_ROWS", 47)
    assert run(unaudited_job(), GIVEN, tmp_path / "b").active.step_losses == whole


@pytest.mark.parametrize(
    "parts",
    [
        [(torch.zeros(ROWS + 1, dtype=torch.int64), True)],
        [(torch.zeros(100, dtype=torch.int64), False)] * 3,
        [(torch.zeros(0, dtype=torch.int64), False)],
    ],
    ids=["too many", "too many in chunks", "trickled"],
)
def test_an_order_is_no_longer_than_the_own_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: Chunks
) -> None:
    monkeypatch.setattr(receiving, "MESSAGE_ROWS", 100)
    tamper(monkeypatch, Kind.ORDER, chunks("positions", parts))
    with pytest.raises(ProtocolError, match=rf"order of at most {ROWS} rows in all from {ACTIVE}|the last order of"):
        run(unaudited_job(), GIVEN, tmp_path)


@pytest.mark.parametrize("rows", [-1, 100_000_001, 2**31, 2**62, -(2**62)])
def test_a_table_larger_than_is_accepted_is_refused_before_its_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    tamper(monkeypatch, Kind.HELLO, with_fields(rows=rows))
    with pytest.raises(ProtocolError, match=r"0 to 100,000,000 rows at .*limits\.peer_rows"):
        run(unaudited_job(), GIVEN, tmp_path)


def test_each_party_says_how_many_rows_it_accepts(tmp_path: Path) -> None:
    raw = raw_job()
    raw["parties"][ACTIVE]["limits"] = {"peer_rows": ROWS - 1}
    with pytest.raises(ProtocolError, match=rf"0 to {ROWS - 1} rows at {TELCO}, got {ROWS}"):
        run(validated(Job, raw, ""), GIVEN, tmp_path)


@pytest.mark.parametrize("width", [0, -1, 7, 65_537, 2**27, 2**62, -(2**40)])
@pytest.mark.parametrize("kind", ["mlp", "python"])
def test_a_width_is_checked_before_anything_is_allocated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int, kind: str
) -> None:
    bottom = {"kind": "python", "path": "tests.parties.runs:DropoutBottom"} if kind == "python" else {"kind": "mlp"}
    tamper(monkeypatch, Kind.READY, with_fields(width=width))
    result = f"an embedding width of .* at {TELCO}, got {width}"
    if kind == "python" and width == 7:
        result = "an embedding of shape"
    with pytest.raises(ProtocolError, match=result):
        run(unaudited_job(bottom=bottom), GIVEN, tmp_path)


@pytest.mark.parametrize("kind", sorted(BOTTOMS.keys() - {"columns", "python"}))
@pytest.mark.parametrize("options", [{}, {"width": 7}, {"hidden": [9, 5]}, {"wide": 3}, {"channels": 4}])
def test_the_stated_width_is_that_of_the_model(kind: str, options: dict[str, Any]) -> None:
    inputs = INPUTS[MODELS[kind].reads]
    if options.keys() - BOTTOMS[kind].config.model_fields.keys() or (kind == "cnn" and "channels" in options):
        return
    small = {"channels": 4} if kind == "resnet18" else {}
    section = {"kind": kind, **small, **options}
    assert stated_width(section) == build_bottom(section, inputs).width


@pytest.mark.parametrize(
    ("reason", "expected"),
    [("PeerLost", "it has lost another party itself"), ("PeerLost shop", "it has lost shop itself")],
)
def test_a_lost_party_is_named_by_the_one_that_waited_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str, expected: str
) -> None:
    def gives_up(message: Message) -> list[Message]:
        stamp = (Kind.CLOSE, message.sender, message.receiver, message.run, -1, -1, message.sequence)
        return [decode(encode(Message(*stamp, fields={"reason": reason})))]

    tamper(monkeypatch, Kind.GRADIENT, gives_up, nth=2)
    with pytest.raises(PeerLost, match=f"lost {ACTIVE}: {expected}; resume when all are back"):
        run(unaudited_job(), GIVEN, tmp_path)
    assert receiving.close_reason(PeerLost("x", "shop")) == "PeerLost shop"
    assert receiving.close_reason(PeerLost("x")) == "PeerLost"
    assert receiving.close_reason(ProtocolError("secret")) == "ProtocolError"


GOOD = {
    "protection": "dp_embedding",
    "party": "bank",
    "unit": "embeddings",
    "covered": 3,
    "sent": 3,
    "changed": 3,
    "kinds": {"embedding": 2, "evaluation": 1},
}
STATED: dict[str, Any] = {
    "unit x": {"unit": "x"},
    "unit html": {"unit": "<script>"},
    "covered below 0": {"covered": -5, "sent": -5, "changed": -5},
    "changed below 0": {"changed": -1},
    "covered beyond 63 bits": {"covered": 2**63},
    "covered of 4,000 digits": {"covered": 10**4000},
    "covered a float": {"covered": 3.0},
    "covered a bool": {"covered": True},
    "covered a text": {"covered": "3"},
    "less covered than sent": {"covered": 0, "changed": 0, "sent": 9},
    "more changed than covered": {"changed": 4},
    "an active party's protection": {"protection": "label_dp"},
    "a protection of no possible name": {"protection": "X y"},
    "a long name": {"protection": "x" * 240},
    "html": {"protection": "<script>document.title='x'</script>"},
    "lines": {"protection": "a\nerror gate failed"},
    "a long party": {"party": "x" * 65},
    "a metric's long name": {"metrics": {"x" * 65: 1.0}},
    "a metric's lines": {"metrics": {"a\nb": 1.0}},
    "a metric without name": {"metrics": {"": 1.0}},
    "a metric of text": {"metrics": {"a": "<b>"}},
    "a nested metric": {"metrics": {"a": {"b": 1.0}}},
    "many metrics": {"metrics": {str(n): 1.0 for n in range(65)}},
    "a count without its limits": {"metrics": {"releases": 5.0}},
    "a limit without its count": {"metrics": {"row_steps_planned": 5.0}},
    "a count that is not whole": {"metrics": {"releases": 0.5, "releases_planned": 1.0, "releases_allowed": 1.0}},
    "a count below 0": {"metrics": {"row_steps": 9.0, "row_steps_planned": 1.0, "row_steps_allowed": -1.0}},
    "a count that no run reaches": {"metrics": {"releases": 9.0, "releases_planned": 1.0, "releases_allowed": 1e308}},
    "an unknown kind": {"kinds": {"x": 1}},
    "a kind below 0": {"kinds": {"embedding": -1}},
    "one more key": {"more": 1},
}
TEXTS = {
    "NaN": json.dumps([{**GOOD, "metrics": {"a": float("nan")}}]),
    "infinity": json.dumps([{**GOOD, "metrics": {"a": float("inf")}}]),
    "1e400": json.dumps([{**GOOD, "metrics": {"a": 1.5}}]).replace("1.5", "1e400"),
    "a huge whole metric": json.dumps([{**GOOD, "metrics": {"a": 10**400}}]),
    "twice": json.dumps([{**GOOD, "metrics": {}}] * 2),
    "300 entries": json.dumps([{**GOOD, "metrics": {}}] * 300),
    "deep": "[" * 60_000,
    "a lone surrogate": json.dumps([{**GOOD, "metrics": {"\ud800": 1.0}}]),
    "no metrics": json.dumps([GOOD]),
}
TEXTS |= {name: json.dumps([{**GOOD, "metrics": {}, **change}]) for name, change in STATED.items()}


@pytest.mark.parametrize("wrong", TEXTS)
def test_evidence_that_a_report_would_refuse_is_refused(wrong: str) -> None:
    sent = Message(Kind.EVIDENCE, TELCO, ACTIVE, "run", -1, -1, 0, fields={"json": TEXTS[wrong]})
    with pytest.raises(ProtocolError, match=f"{TELCO}") as refused:
        parse_evidence(decode(encode(sent)).fields["json"], TELCO)
    assert len(str(refused.value)) < 500
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("wrong", ["less covered than sent", "an active party's protection", "deep"])
def test_such_evidence_is_refused_when_it_arrives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    def change(message: Message) -> list[Message]:
        return [decode(encode(each)) for each in with_fields(json=TEXTS[wrong])(message)]

    tamper(monkeypatch, Kind.EVIDENCE, change)
    with pytest.raises(ProtocolError, match=f"{TELCO}") as refused:
        run(unaudited_job(epochs=1), GIVEN, tmp_path)
    assert len(str(refused.value)) < 500
    assert str(refused.value).isprintable()


def test_honest_evidence_arrives_whole() -> None:
    assert len(parse_evidence(json.dumps([{**GOOD, "metrics": {}}]), TELCO)) == 1, "each wrong one is wrong by itself"
    item = Evidence("nopeek", "shop", "steps", 5, 5, 2, {"terms": 3, "alpha": 0.1})
    assert parse_evidence(evidence_text([item]), "telco") == [Evidence("nopeek", TELCO, *list(vars(item).values())[2:])]


def test_a_figure_that_is_not_defined_is_left_out_of_what_is_sent() -> None:
    item = Evidence("nopeek", TELCO, "steps", 5, 5, 2, {"terms": float("nan"), "alpha": 0.1})
    assert dict(parse_evidence(evidence_text([item]), TELCO)[0].metrics) == {"alpha": 0.1}


@pytest.mark.parametrize("name", ["releases", "row_steps"])
def test_the_largest_counts_that_are_taken_in_have_a_finite_cost(name: str) -> None:
    raw = raw_job(epochs=1)
    raw["parties"][TELCO]["privacy"] = {
        "dp_embedding": {"clip": 1.0, "noise_multiplier": 1.0},
        "dp_bottom": {"clip": 1.0, "noise_multiplier": 1.0},
    }
    job = validated(Job, raw, "")
    protection = {"releases": "dp_embedding", "row_steps": "dp_bottom"}[name]
    metrics = {name: 2.0**53, f"{name}_planned": 1.0, f"{name}_allowed": 2.0**53}
    taken = parse_evidence(json.dumps([{**GOOD, "protection": protection, "metrics": metrics}]), TELCO)
    (total,) = passive_ledger(job, TELCO, taken).totals
    assert total.epsilon is not None
    assert 2**51 < total.epsilon < math.inf


NUMBER = st.integers(-(2**70), 2**70) | st.integers(0, 9)
FEW, MANY = st.integers(0, 3), st.integers(4, 2**40)
NAME = st.sampled_from(["factor", "clip", "share"]) | st.text(max_size=70)
"""Mostly what is taken in: of numbers from everywhere four statements in a hundred are."""
STATEMENT = st.fixed_dictionaries(
    {
        "protection": st.sampled_from(["dp_embedding", "dp_bottom", "nopeek"]) | st.sampled_from(["label_dp", "x"]),
        "party": st.text(max_size=70),
        "unit": st.sampled_from(["embeddings", "rows", "steps", "x"]),
        "covered": MANY | NUMBER,
        "sent": FEW | NUMBER,
        "changed": FEW | NUMBER,
        "metrics": st.dictionaries(NAME, FEW | MANY | st.floats() | NUMBER | st.text(max_size=3), max_size=3),
        "kinds": st.dictionaries(
            st.sampled_from(["embedding", "evaluation", "gradient", "x"]), FEW | NUMBER, max_size=3
        ),
    }
)


REPORTED = unaudited_job()


@settings(max_examples=45, deadline=None)
@given(st.lists(STATEMENT, max_size=2))
def test_whatever_is_taken_in_can_be_reported(stated: list[dict[str, Any]]) -> None:
    try:
        taken = parse_evidence(json.dumps(stated), TELCO)
    except ProtocolError:
        return
    for result in protection_results(REPORTED, taken):
        assert json.loads(result.model_dump_json())["name"] == result.name
