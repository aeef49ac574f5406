"""Other systems, single releases and served scores: what they are measured by, without the systems themselves."""

from __future__ import annotations

import hashlib
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from benchmarks import real_divisions, single_releases, tasks
from benchmarks.rivals.page import page
from benchmarks.rivals.relay import Relay
from benchmarks.rivals.systems import first_gradients, not_split_by, turns
from benchmarks.served_scores import equations, generated
from benchmarks.utility.datasets import DataSet


def test_a_relay_counts_what_it_passes_on_in_both_directions() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        relay = Relay(server.getsockname()[1], keep=True)

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(connection.recv(100).upper() * 2)

        thread = threading.Thread(target=answer)
        thread.start()
        with socket.create_connection(("127.0.0.1", relay.port)) as client:
            client.sendall(b"three")
            received = b""
            while piece := client.recv(100):
                received += piece
        thread.join()
        relay.close()
    assert received == b"THREETHREE"
    assert (relay.there, relay.back, bytes(relay.kept[0])) == (5, 10, b"THREETHREE")


def test_gradients_are_found_in_frames_of_a_connection() -> None:
    pairs = np.array([[0.25, 0.19], [-0.75, 0.19], [0.25, 0.19]], np.float32)
    message = bytes(9) + pairs.tobytes()
    frames = b"".join(
        len(part).to_bytes(3) + bytes([kind, 0]) + stream.to_bytes(4) + part
        for kind, stream, part in ((4, 0, b""), (0, 3, message[:7]), (0, 5, b"other"), (0, 3, message[7:]))
    )
    assert first_gradients(frames, 3).tolist() == [0.25, -0.75, 0.25]
    with pytest.raises(ValueError, match="found none"):
        first_gradients(frames, 4)


def test_a_leaf_says_which_way_its_row_went_at_each_node() -> None:
    found = turns(np.array([1, 5, 14, 1]))  # of 14 the way is right, right, right
    assert found.tolist() == [[1, 0, 0], [-1, 1, 0], [-1, -1, -1], [1, 0, 0]]


def test_nodes_that_one_own_column_explains_are_left_out() -> None:
    own = np.array([[0.0, 5.0], [1.0, 1.0], [2.0, 4.0], [3.0, 0.0]])
    nodes = np.array([[1.0, 1.0, 1.0], [1.0, -1.0, 1.0], [-1.0, -1.0, 1.0], [-1.0, 1.0, 0.0]])
    assert not_split_by(own, nodes).tolist() == nodes[:, [1]].tolist()  # the first is one of `own[:, 0]`, the last none


def test_equations_are_exact_for_one_column_and_of_least_norm_for_more() -> None:
    draw = np.random.default_rng(0)
    own, theirs, weights = draw.normal(size=(50, 3)), draw.normal(size=(50, 2)), draw.normal(size=5)
    one = np.hstack([own, theirs[:, :1]]) @ weights[:4] + 0.3
    np.testing.assert_allclose(equations(weights[:4], own, one, 0.3), theirs[:, :1])
    both = np.hstack([own, theirs]) @ weights - 1
    found = equations(weights, own, both, -1.0)
    np.testing.assert_allclose(np.hstack([own, found]) @ weights - 1, both)
    assert np.linalg.norm(found) < np.linalg.norm(theirs)


def test_a_generator_reads_the_column_that_decides_the_score(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(single_releases, "EPOCHS", 30)
    torch.manual_seed(0)
    own, theirs = torch.randn(1280, 2), torch.randn(1280, 2)
    model = nn.Linear(4, 1)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.5, -0.5, 2.0, 0.0]]))
        logits = model(torch.cat([own, theirs], dim=1))[:, 0]
    found = generated(model, own, logits, 2)
    errors = (found - theirs).square().mean(dim=0)
    assert errors[0] < 0.3 < 0.7 < errors[1]


@pytest.mark.parametrize("release", single_releases.RELEASES)
def test_every_release_has_a_row_for_each_row(release: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(single_releases, "EPOCHS", 1)
    x, labels = torch.randn(256, 16), torch.randint(2, (256,)).float()
    encoder = single_releases.RELEASES[release](x, labels, 4)
    sent = encoder(torch.cat([x, x[:3]]))
    assert sent.shape[0] == 259
    assert torch.isfinite(sent).all()
    assert float(sent.detach().var(dim=0).max()) > 0


def test_a_data_set_of_another_checksum_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.csv").write_text("x\n1\n")
    digest = hashlib.sha256(b"x\n1\n").hexdigest()

    def read(packages: Path) -> DataSet:
        table = pd.read_csv(packages / "a.csv")
        return DataSet("binary", table, table, table.x.to_numpy())

    about = real_divisions.Division({"a.csv": digest}, "a 1.0", "none", "a; b", read)
    monkeypatch.setattr(real_divisions, "DIVISIONS", {"a": about})
    assert real_divisions.division("a", tmp_path).labels.tolist() == [1]
    (tmp_path / "a.csv").write_text("x\n2\n")
    with pytest.raises(ValueError, match=r"a\.csv: expected SHA-256 .*install a 1\.0"):
        real_divisions.division("a", tmp_path)


def test_the_table_names_what_was_read_and_leaves_out_what_was_not() -> None:
    about = {"data": "adult", "seed": 0, "wall": 1.0, "cpu": 2.0, "notes": {}}
    lines = [
        {**about, "system": "open", "auc": 0.9, "bytes": 2_000_000, "labels": 1.0, "columns": _read(0.5)},
        {**about, "system": "shares", "auc": 0.8, "bytes": 0, "output": _read(0.1)},
    ]
    rows = [line for line in page(lines).splitlines() if line.startswith("|")]
    assert rows[2] == "| open | 1 | 0.900 | – | 2.0 | 1.0 | 2.00 | 1.000 | 0.500 (0.900) | – |"
    assert rows[3] == "| shares | 1 | 0.800 | – | 2.0 | 1.0 | – | – | – | 0.100 (0.900) |"


def test_a_system_is_compared_with_grades_on_the_same_rows() -> None:
    about = {"data": "adult", "bytes": 0, "wall": 1.0, "cpu": 2.0, "notes": {}}
    aucs = {"Cutlayer, both": (0.8, 0.9), "other": (0.79, 0.89), "half": (0.7, None)}
    lines = [
        {**about, "system": system, "seed": seed, "auc": auc}
        for system, each in aucs.items()
        for seed, auc in enumerate(each)
        if auc is not None
    ]
    rows = [line for line in page(lines).splitlines() if line.startswith("|")]
    assert rows[3].startswith("| other | 2 | 0.840 ± 0.635 | −0.010 ± 0.000 |")  # rows that are hard are so for both
    assert rows[4].startswith("| half | 1 | 0.700 | −0.100 |")


def test_lines_of_counts_and_survival_are_written_with_the_commit_once_all_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, lines = (
        tmp_path / "tasks.jsonl",
        [{"data": "flchain", "integrated_brier": 0.1}, {"data": "randhie", "d2": 0.2}],
    )
    monkeypatch.setattr(tasks, "provenance", lambda: {"commit": "abc", "host": "a machine"})
    monkeypatch.setattr(tasks, "measured", lambda other, folder: iter(lines))
    tasks.main(["--other", "python", "--results", str(path)])
    assert [json.loads(line) for line in path.read_text().splitlines()] == [{**line, "commit": "abc"} for line in lines]

    def interrupted(other: str, folder: Path) -> Iterator[dict[str, object]]:
        yield lines[0]
        raise KeyboardInterrupt

    monkeypatch.setattr(tasks, "measured", interrupted)
    with pytest.raises(KeyboardInterrupt):
        tasks.main(["--other", "python", "--results", str(path)])
    assert len(path.read_text().splitlines()) == 2  # a run that fails leaves what was there


def _read(r2: float) -> dict[str, float]:
    return {"r2": r2, "best column": 0.9, "width": 4}
