"""Answers online equal the offline predictions, with all parties and without some."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet

from cutlayer_serve.status import Status
from cutlayer_serve.trained_party import TrainedParty
from tests.serving.runs import unserved
from tests.serving.world import ACTIVE, MISSING_AT_SHOP, PASSIVES, ROWS, offline, own_table, probabilities, world

IDS = [3, 77, 12, 140, 0, 55]


def test_all_parties_equal_the_offline_prediction(plain: Path) -> None:
    async def check() -> None:
        async with world(plain) as served:
            answer = await served.predict(IDS)
            assert not answer["degraded"]
            assert [row["id"] for row in answer["predictions"]] == IDS
            np.testing.assert_allclose(probabilities(answer), offline(plain, IDS), atol=1e-6)
            (subset,) = answer["subsets"]
            assert subset["contributed"] == [ACTIVE, *PASSIVES]
            expected = TrainedParty.open(plain, ACTIVE).utility[frozenset()]
            assert subset["expected"]["value"] == expected.metrics["auc"]

    asyncio.run(check())


def test_each_known_row_of_a_request_is_answered_and_the_others_have_a_reason(run: Path) -> None:
    known, asked = [3, 77], [987654, 3, "nobody", 77]

    async def check() -> None:
        async with world(run, required=["telco"]) as served:
            answer = await served.predict(asked)
            first, third = answer["predictions"][::2]
            assert [row["id"] for row in answer["predictions"]] == asked
            answered = np.array([row["probability"] for row in answer["predictions"][1::2]])
            np.testing.assert_allclose(answered, offline(run, known), atol=1e-6)
            assert first["probability"] is third["probability"] is None
            assert first["reason"] == "bank has no row of this id; give its columns with the request"
            nobody = answer["subsets"][first["subset"]]
            assert (nobody["contributed"], nobody["expected"]) == ([], None)
            assert nobody["absent"] == {
                "bank": "it has no row of this id", "telco": "it was not asked", "shop": "it was not asked"
            }  # fmt: skip
            columns = (await served.predict(asked, answer="columns"))["predictions"]
            assert columns["probability"] == [row["probability"] for row in answer["predictions"]]
            assert [served.services[name].answered.rows for name in PASSIVES] == [{Status.PRESENT: 4}] * 2
            alone = await served.predict(asked[::2])
            assert [row["probability"] for row in alone["predictions"]] == [None, None]
            assert {row["reason"] for row in alone["predictions"]} == {first["reason"]}
            assert [service.answered.lookups for service in served.services.values()] == [2, 2]
            metrics = (await served.client.get("/metrics")).text
            assert "cutlayer_unanswered_rows_total 6.0" in metrics
            assert "cutlayer_degraded_rows_total 0.0" in metrics

    asyncio.run(check())


def test_probabilities_are_of_the_class_that_the_run_calls_positive(plain: Path, tmp_path: Path) -> None:
    run = unserved(plain, tmp_path / "run")
    record = run / "checkpoint" / ACTIVE / "model.json"
    model = json.loads(record.read_text())
    model["task"]["task"]["positive"] = 0
    record.write_text(json.dumps(model))

    async def check() -> None:
        async with world(run) as served:
            answer = await served.predict(IDS)
            np.testing.assert_allclose(probabilities(answer), 1 - offline(plain, IDS), atol=1e-6)
            schema = (await served.client.get("/v1/schema")).json()
            assert (schema["classes"].index(schema["positive"]), len(schema["classes"])) == (0, 2)

    with pytest.warns(UserWarning, match=r"not as the run wrote it: .*model\.json"):
        asyncio.run(check())


def test_columns_and_rows_are_the_same_answer(plain: Path) -> None:
    async def check() -> None:
        async with world(plain) as served:
            ids = [*IDS, MISSING_AT_SHOP + 2]
            rows, columns = await served.predict(ids), await served.predict(ids, answer="columns")
            assert columns["predictions"]["probability"] == [row["probability"] for row in rows["predictions"]]
            assert columns["predictions"]["subset"] == [row["subset"] for row in rows["predictions"]]
            assert columns["subsets"] == rows["subsets"]
            assert len({*columns["predictions"]["subset"]}) == 2

    asyncio.run(check())


@pytest.mark.parametrize(
    ("run", "absent"), [("plain", ("telco",)), ("headed", ("shop",)), ("plain", PASSIVES), ("headed", PASSIVES)]
)
def test_absent_parties_equal_the_offline_prediction(
    run: str, absent: tuple[str, ...], request: pytest.FixtureRequest
) -> None:
    folder: Path = request.getfixturevalue(run)

    async def check() -> None:
        async with world(folder, tuple(name for name in PASSIVES if name not in absent)) as served:
            answer = await served.predict(IDS)
            assert answer["degraded"]
            np.testing.assert_allclose(probabilities(answer), offline(folder, IDS, absent), atol=1e-6)
            (subset,) = answer["subsets"]
            assert {*subset["absent"]} == {*absent}
            assert set(subset["absent"].values()) == {"it is not connected"}
            expected = TrainedParty.open(folder, ACTIVE).utility[frozenset(absent)]
            assert subset["expected"]["value"] == expected.metrics["auc"]

    asyncio.run(check())


def test_a_party_without_the_id_is_absent_for_that_row_alone(plain: Path) -> None:
    ids = [3, MISSING_AT_SHOP + 2, 9, ROWS - 1]

    async def check() -> None:
        async with world(plain) as served:
            answer = await served.predict(ids)
            rows = answer["predictions"]
            assert [answer["subsets"][row["subset"]]["degraded"] for row in rows] == [False, True, False, True]
            whole, without = offline(plain, [3, 9]), offline(plain, [ids[1], ids[3]], ("shop",))
            expected = [whole[0], without[0], whole[1], without[1]]
            np.testing.assert_allclose(probabilities(answer), expected, atol=1e-6)
            absent = answer["subsets"][rows[1]["subset"]]["absent"]
            assert absent == {"shop": "it has no row of this id"}

    asyncio.run(check())


def test_zeros_and_active_only_are_named_fallbacks(headed: Path) -> None:
    async def check() -> None:
        async with world(headed, ("telco",), absent="active_only") as served:
            answer = await served.predict(IDS)
            np.testing.assert_allclose(probabilities(answer), offline(headed, IDS, PASSIVES), atol=1e-6)
            (subset,) = answer["subsets"]
            assert subset["contributed"] == [ACTIVE]
            assert "active_only" in subset["absent"]["telco"]
        async with world(headed, ("telco",), absent="zeros") as served:
            zeros = probabilities(await served.predict(IDS))
            assert np.abs(zeros - offline(headed, IDS, ("shop",))).max() > 1e-6  # the head, which zeros do not use

    asyncio.run(check())


def test_columns_given_with_the_request_replace_those_of_the_store(plain: Path) -> None:
    async def check() -> None:
        async with world(plain) as served:
            table = parquet.read_table(own_table(plain, ACTIVE)).slice(0, 3)
            ids = table.column("id").to_pylist()
            columns = {name: table.column(name).to_pylist() for name in ("income", "colour")}
            stored, given = await served.predict(ids), await served.predict(ids, columns=columns)
            np.testing.assert_allclose(probabilities(stored), probabilities(given), atol=1e-6)
            changed = await served.predict(ids, columns={**columns, "income": [9.0, -9.0, 90.0]})
            assert np.abs(probabilities(changed) - probabilities(stored)).max() > 1e-4

    asyncio.run(check())


def test_many_requests_at_once_get_their_own_rows(plain: Path) -> None:
    async def check() -> None:
        async with world(plain) as served:
            sizes = [1 + index % 7 for index in range(60)]
            asked = [
                [(11 * number + row) % MISSING_AT_SHOP for row in range(size)] for number, size in enumerate(sizes)
            ]
            answers = await asyncio.gather(*(served.predict(ids) for ids in asked))
            assert served.active.versions.current.batches < len(asked)
            everything = offline(plain, list(range(MISSING_AT_SHOP)))
            for ids, answer in zip(asked, answers, strict=True):
                np.testing.assert_allclose(probabilities(answer), everything[ids], atol=1e-6)

    asyncio.run(check())
