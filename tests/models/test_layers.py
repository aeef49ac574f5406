"""What the built-in kinds compute, against sums written by hand, and what a tap on their layers sees."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from cutlayer.errors import ConfigError
from cutlayer.models import Dense, FusedEmbedding, Inputs, build_bottom, build_top, collect_layer_outputs, layers_of
from cutlayer.models.embedding_table import EmbeddingTable

MIXED = Inputs((4, 7, 2), 3)


@settings(deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(1, 4), st.integers(1, 12))
def test_one_fused_table_is_a_table_per_column(cardinalities: list[int], dim: int, rows: int) -> None:
    fused = FusedEmbedding(tuple(cardinalities), dim)
    assert sum(p.numel() for p in fused.parameters()) == sum(cardinalities) * dim
    draw = torch.Generator().manual_seed(0)
    columns = [torch.randint(count, (rows,), generator=draw) for count in cardinalities]
    codes = torch.stack(columns, dim=1).to(torch.int32)
    tables = fused.table.weight.detach().split(cardinalities)
    expected = torch.cat([table[column] for table, column in zip(tables, columns, strict=True)], dim=1)
    assert torch.equal(fused(codes), expected)


def test_the_highest_code_of_each_column_stays_in_its_own_rows() -> None:
    fused = FusedEmbedding((2, 3), 1)
    with torch.no_grad():
        fused.table.weight.copy_(torch.arange(5.0)[:, None])
    codes = torch.tensor([[1, 0], [0, 2]], dtype=torch.int32)
    assert fused(codes).tolist() == [[1.0, 2.0], [0.0, 4.0]]


@pytest.mark.parametrize("threads", [1, 2])
def test_a_table_and_its_gradient_are_those_of_nn_embedding(threads: int) -> None:
    """To the last bit: sums are in the order of the rows, with repeated codes and with several threads too."""
    draw = torch.Generator().manual_seed(0)
    ours, plain = EmbeddingTable(5_000, 4), nn.Embedding(5_000, 4)
    plain.load_state_dict(ours.state_dict())
    codes = torch.randint(5_000, (700, 9), generator=draw, dtype=torch.int32)
    codes[:, 0] = 7
    upstream = torch.randn(700, 9, 4, generator=draw)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        results = [table(codes) for table in (ours, plain)]
        for result in results:
            result.backward(upstream)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*results)
    assert ours.weight.grad is not None
    assert plain.weight.grad is not None
    assert torch.equal(ours.weight.grad, plain.weight.grad)
    assert ours.weight.grad.count_nonzero() > 4 * 3_000


def test_a_table_refuses_a_code_that_it_does_not_have() -> None:
    with pytest.raises(IndexError):
        EmbeddingTable(3, 2)(torch.tensor([3], dtype=torch.int32))


def codes_and_numbers(rows: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    columns = [torch.randint(count, (rows,), generator=draw) for count in MIXED.cardinalities]
    return torch.stack(columns, dim=1).to(torch.int32), torch.randn(rows, MIXED.numbers, generator=draw)


@pytest.mark.parametrize("activation", ["relu", "gelu", "tanh", "silu"])
def test_mlp_is_what_its_name_says(activation: str) -> None:
    torch.manual_seed(0)
    model = build_bottom({"kind": "mlp", "hidden": [5, 4], "embedding": 2, "activation": activation}, MIXED)
    codes, numbers = codes_and_numbers()
    weights = model.state_dict()
    starts = torch.tensor([0, 4, 11])
    x = torch.cat([weights["categories.table.weight"][codes + starts].flatten(1), numbers], dim=1)
    for index in range(2):
        x = x @ weights[f"layers.{index}.linear.weight"].T + weights[f"layers.{index}.linear.bias"]
        x = getattr(torch.nn.functional, activation)(x)
    torch.testing.assert_close(model(codes, numbers), x)


def test_dropout_acts_in_training_alone() -> None:
    torch.manual_seed(0)
    model = build_bottom({"kind": "mlp", "hidden": [5], "dropout": 0.5}, MIXED)
    inputs = codes_and_numbers()
    assert not torch.equal(model(*inputs), model(*inputs))
    model.eval()
    assert torch.equal(model(*inputs), model(*inputs))


@pytest.mark.parametrize("wide", [1, 3])
def test_wide_deep_is_the_deep_part_plus_a_linear_one(wide: int) -> None:
    """Two parties and a top model against the sum of Cheng et al., term by term."""
    torch.manual_seed(0)
    section = {"kind": "wide_deep", "hidden": [4], "embedding": 2, "wide": wide}
    bottoms = {name: build_bottom(section, MIXED) for name in ("bank", "telco")}
    widths = {name: bottom.width for name, bottom in bottoms.items()}
    assert widths == dict.fromkeys(widths, 4 + wide)
    top = build_top({"kind": "wide_deep", "hidden": [3], "wide": wide}, widths, 2)
    with torch.no_grad():
        for parameter in [p for bottom in bottoms.values() for p in bottom.parameters()]:
            parameter.normal_()
    codes, numbers = codes_and_numbers()
    logits = top({name: bottom(codes, numbers) for name, bottom in bottoms.items()})

    weights, starts = top.state_dict(), torch.tensor([0, 4, 11])
    deep, linear = [], torch.zeros(6, wide)
    for bottom in bottoms.values():
        own = bottom.state_dict()
        x = torch.cat([own["deep.categories.table.weight"][codes + starts].flatten(1), numbers], dim=1)
        deep.append(torch.relu(x @ own["deep.layers.0.linear.weight"].T + own["deep.layers.0.linear.bias"]))
        for column in range(3):
            linear = linear + own["wide_categories.table.weight"][codes[:, column] + starts[column]]
        linear = linear + numbers @ own["wide_numbers.weight"].T + own["wide_numbers.bias"]
    hidden = torch.cat(deep, dim=1) @ weights["deep.layers.0.linear.weight"].T + weights["deep.layers.0.linear.bias"]
    expected = torch.relu(hidden) @ weights["deep.logits.weight"].T + weights["deep.logits.bias"]
    torch.testing.assert_close(logits, expected + linear @ weights["wide.weight"].T)


def test_a_fresh_wide_part_of_categories_adds_nothing() -> None:
    torch.manual_seed(0)
    model = build_bottom({"kind": "wide_deep", "wide": 2}, Inputs((4, 7), 0))
    codes = torch.tensor([[0, 1], [3, 6]], dtype=torch.int32)
    assert not model(codes, torch.zeros(2, 0))[:, -2:].any()


def test_a_wide_top_refuses_embeddings_without_a_wide_part() -> None:
    with pytest.raises(ConfigError, match=r"telco.*use wide_deep below"):
        build_top({"kind": "wide_deep", "wide": 3}, {"bank": 8, "telco": 3}, 1)


@pytest.mark.parametrize("hidden", [[], [4], [4, 3]])
def test_a_top_model_concatenates_in_the_jobs_order(hidden: list[int]) -> None:
    torch.manual_seed(0)
    top = build_top({"kind": "mlp", "hidden": hidden}, {"b": 2, "a": 3}, 1)
    embeddings = {"b": torch.randn(5, 2), "a": torch.randn(5, 3)}
    x = torch.cat([embeddings["b"], embeddings["a"]], dim=1)
    for index in range(len(hidden)):
        linear = top.state_dict()
        x = torch.relu(x @ linear[f"layers.{index}.linear.weight"].T + linear[f"layers.{index}.linear.bias"])
    expected = x @ top.state_dict()["logits.weight"].T + top.state_dict()["logits.bias"]
    torch.testing.assert_close(top(embeddings), expected)


def test_layers_are_dense_blocks_whole_and_leaves_in_order() -> None:
    model = build_bottom({"kind": "mlp", "hidden": [5, 4], "dropout": 0.1}, MIXED)
    assert [name for name, _ in layers_of(model)] == ["categories.table", "dropout", "layers.0", "layers.1"]
    top = build_top({"kind": "mlp", "hidden": [5]}, {"a": 3}, 1)
    assert [name for name, _ in layers_of(nn.ModuleDict({"bottom": model, "top": top}))][-2:] == [
        "top.layers.0",
        "top.logits",
    ]
    assert isinstance(dict(layers_of(top))["layers.0"], Dense)


def test_a_tap_sees_the_first_rows_of_every_layer_in_the_order_they_ran() -> None:
    model = build_bottom({"kind": "mlp", "hidden": [5, 4], "embedding": 2}, MIXED)
    codes, numbers = codes_and_numbers(6)
    with collect_layer_outputs(model, 4) as outputs:
        embedding = model(codes, numbers)
    assert list(outputs) == ["categories.table", "layers.0", "layers.1"]
    assert {name: tuple(output.shape) for name, output in outputs.items()} == {
        "categories.table": (4, 6),
        "layers.0": (4, 5),
        "layers.1": (4, 4),
    }
    assert torch.equal(outputs["layers.1"], embedding[:4])
    assert not any(output.requires_grad for output in outputs.values())


def test_a_tap_lets_go_even_where_the_model_fails() -> None:
    model = build_bottom({"kind": "mlp"}, MIXED)
    inputs = codes_and_numbers()
    seen: dict[str, torch.Tensor] = {}

    def failing() -> None:
        nonlocal seen
        with collect_layer_outputs(model, 4) as seen:
            model(*inputs)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    before = dict(seen)
    model(*inputs)
    assert {name: id(output) for name, output in seen.items()} == {name: id(output) for name, output in before.items()}
    assert not any(layer._forward_hooks for _, layer in layers_of(model))


def test_a_tap_on_nothing_sees_nothing() -> None:
    with collect_layer_outputs(None, 4) as outputs:
        pass
    assert outputs == {}


def test_a_tap_does_not_change_what_is_computed() -> None:
    model = build_bottom({"kind": "wide_deep"}, MIXED)
    inputs = codes_and_numbers()
    plain = model(*inputs)
    with collect_layer_outputs(model, 2):
        assert torch.equal(model(*inputs), plain)
