"""One of two parties of a model in SecretFlow's SPU; run by `python -m benchmarks.rivals`.

Reads its own columns alone. The label owner (rank 0) gets the score of every row, and nothing else is opened but, in
boosting, which column and interval each node is split at, as in SPU's own example.
"""

from __future__ import annotations

import json
import pickle
import resource
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import spu
from spu import libspu
from spu.utils import frontend

Array = Any


class Device:
    """Two processes that compute on shares.

    Args:
        rank: Number of this party, 0 for the label owner.
        addresses: Where this party listens and where it reaches the other, in the order of the ranks.
        protocol: Name of SPU's protocol.
    """

    def __init__(self, rank: int, addresses: list[str], protocol: str) -> None:
        self.rank = rank
        config = libspu.RuntimeConfig(protocol=getattr(libspu.ProtocolKind, protocol), field=libspu.FieldType.FM64)
        desc = libspu.link.Desc()
        desc.recv_timeout_ms = 600_000
        desc.http_timeout_ms = 600_000
        for number, address in enumerate(addresses):
            desc.add_party(f"id_{number}", address)
        self.link = libspu.link.create_brpc(desc, rank)
        self._io, self._runtime = spu.Io(2, config), spu.Runtime(self.link, config)
        self._shapes: dict[str, jax.ShapeDtypeStruct] = {}
        self._compiled: dict[Any, Any] = {}

    def put(self, name: str, owner: int, value: Array = None) -> None:
        """Share a party's array with the other."""
        if self.rank == owner:
            shares = self._io.make_shares(np.ascontiguousarray(value), libspu.Visibility.VIS_SECRET)
            other = shares[1 - owner]
            shape = (value.shape, str(value.dtype))
            self.link.send(1 - owner, pickle.dumps((shape, other.meta, list(other.share_chunks))))
            mine = shares[owner]
        else:
            shape, meta, chunks = pickle.loads(self.link.recv(owner))
            mine = libspu.Share()
            mine.meta, mine.share_chunks = meta, chunks
        self._shapes[name] = jax.ShapeDtypeStruct(*shape)
        self._runtime.set_var(name, mine)

    def call(self, function: Callable[..., Any], inputs: list[str], outputs: list[str]) -> None:
        """Compute shares of the outputs, whose names may be those of inputs."""
        shapes = [self._shapes[name] for name in inputs]
        key = (function, tuple((each.shape, str(each.dtype)) for each in shapes), tuple(inputs), tuple(outputs))
        if key not in self._compiled:
            self._compiled[key] = frontend.compile(
                frontend.Kind.JAX,
                function,
                shapes,
                {},
                [f"{name}" for name in inputs],
                [libspu.Visibility.VIS_SECRET] * len(inputs),
                lambda _: outputs,
            )
        executable, out = self._compiled[key]
        self._runtime.run(executable)
        for name, each in zip(outputs, jax.tree_util.tree_leaves(out), strict=True):
            self._shapes[name] = jax.ShapeDtypeStruct(each.shape, each.dtype)

    def open(self, name: str, both: bool = False) -> Array:
        """The array of a name, for the label owner; for both parties where the example opens it to all."""
        mine = self._runtime.get_var(name)
        packed = pickle.dumps((mine.meta, list(mine.share_chunks)))
        if self.rank or both:
            self.link.send(1 - self.rank, packed)
        if self.rank and not both:
            return None
        other = libspu.Share()
        other.meta, other.share_chunks = pickle.loads(self.link.recv(1 - self.rank))
        shares = [mine, other] if self.rank == 0 else [other, mine]
        return self._io.reconstruct(shares)


def logistic(device: Device, own: Array, labels: Array, train: Array, settings: dict[str, Any]) -> str:
    """Logistic regression by mini-batches, its sigmoid a line between 0 and 1, as in SPU's example `ss_lr`."""
    size, rate = settings["batch"], settings["rate"]

    def epoch(a: Array, b: Array, y: Array, w: Array) -> Array:
        x = jnp.concatenate([a, b, jnp.ones((a.shape[0], 1), jnp.float32)], axis=1)
        for start in range(0, x.shape[0] - size + 1, size):
            part, truth = x[start : start + size], y[start : start + size]
            chance = jnp.clip(0.5 + 0.25 * (part @ w), 0.0, 1.0)
            w = w - rate * (part.T @ (chance - truth)) / size
        return w

    def score(a: Array, b: Array, w: Array) -> Array:
        return jnp.concatenate([a, b, jnp.ones((a.shape[0], 1), jnp.float32)], axis=1) @ w

    width = _share(device, own, labels, train)
    device.put("w", 0, None if device.rank else np.zeros((width + 1, 1), np.float32))
    for _ in range(settings["epochs"]):
        device.call(epoch, ["a", "b", "y", "w"], ["w"])
    device.call(score, ["a_all", "b_all", "w"], ["score"])
    return "score"


def network(device: Device, own: Array, labels: Array, train: Array, settings: dict[str, Any]) -> str:
    """A network of layers of 30, 15 and 8 that learns by squared error, as in SPU's example `flax_mlp`."""
    size, rate = settings["batch"], settings["rate"]
    width = _share(device, own, labels, train)
    widths = [width, *settings["layers"], 1]

    def forward(weights: list[Array], x: Array) -> Array:
        for at, (w, b) in enumerate(zip(weights[::2], weights[1::2], strict=True)):
            x = x @ w + b
            x = jax.nn.relu(x) if at < len(widths) - 2 else x
        return x

    def loss(weights: list[Array], x: Array, y: Array) -> Array:
        return jnp.mean((forward(weights, x) - y) ** 2) / 2

    def epoch(a: Array, b: Array, y: Array, *weights: Array) -> list[Array]:
        x = jnp.concatenate([a, b], axis=1)

        def step(number: Array, now: list[Array]) -> list[Array]:
            part, truth = (jax.lax.dynamic_slice_in_dim(each, number * size, size) for each in (x, y))
            return [each - rate * slope for each, slope in zip(now, jax.grad(loss)(now, part, truth), strict=True)]

        # A loop, since steps written out one by one take SPU minutes to compile.
        after: list[Array] = jax.lax.fori_loop(0, len(x) // size, step, list(weights))
        return after

    names, draw = [], np.random.default_rng(settings["seed"])
    for at, (enter, leave) in enumerate(pairwise(widths)):
        first = draw.normal(0, (2 / enter) ** 0.5, (enter, leave)).astype(np.float32)
        for name, value in ((f"w{at}", first), (f"b{at}", np.zeros((1, leave), np.float32))):
            device.put(name, 0, None if device.rank else value)
            names.append(name)
    for _ in range(settings["epochs"]):
        device.call(epoch, ["a", "b", "y", *names], names)

    def score(a: Array, b: Array, *weights: Array) -> Array:
        return forward(list(weights), jnp.concatenate([a, b], axis=1))

    device.call(score, ["a_all", "b_all", *names], ["score"])
    return "score"


def boosting(device: Device, own: Array, labels: Array, train: Array, settings: dict[str, Any]) -> str:
    """Boosted trees of all nodes of a depth, as SPU's example `ss_xgb`: gains on shares, the chosen splits opened."""
    depth, intervals = settings["depth"], settings["intervals"]
    cuts = [np.unique(np.quantile(column[train], np.linspace(0, 1, intervals + 1)[1:-1])) for column in own.T]
    below = [(own[:, at][:, None] <= points).astype(np.float32) for at, points in enumerate(cuts)]
    mine = np.concatenate([np.zeros((len(own), 0), np.float32), *below], axis=1)
    sizes = _sizes(device, mine.shape[1])
    for rank, name in enumerate("ab"):
        device.put(name, rank, mine[train] if device.rank == rank else None)
    device.put("y", 0, None if device.rank else labels[None, :].astype(np.float32))
    for name, rows in (("pred", len(train)), ("score", len(own))):
        device.put(name, 0, None if device.rank else np.zeros((1, rows), np.float32))

    def slopes(y: Array, pred: Array) -> tuple[Array, Array]:
        chance = 0.5 * pred * jax.lax.rsqrt(1 + pred * pred) + 0.5
        return chance - y, chance * (1 - chance)

    def gains(a: Array, b: Array, g: Array, h: Array, nodes: Array) -> Array:
        every = jnp.concatenate([a, b], axis=1)
        gl, hl = (g * nodes) @ every, (h * nodes) @ every
        gs, hs = jnp.sum(g * nodes, axis=1, keepdims=True), jnp.sum(h * nodes, axis=1, keepdims=True)
        gain = gl * (gl / (hl + 0.5)) + (gs - gl) * ((gs - gl) / (hs - hl + 0.5))
        return jnp.argmax(gain, axis=1)

    def children(nodes: Array, *lefts: Array) -> Array:
        left = jnp.concatenate(lefts, axis=0) * nodes
        return jnp.stack([left, nodes - left], axis=1).reshape(-1, nodes.shape[1])

    def leaves(g: Array, h: Array, nodes: Array) -> Array:
        return -0.3 * jnp.sum(g * nodes, axis=1, keepdims=True) / (jnp.sum(h * nodes, axis=1, keepdims=True) + 0.5)

    def added(pred: Array, nodes: Array, weights: Array) -> Array:
        return pred + jnp.sum(nodes * weights, axis=0, keepdims=True)

    for _ in range(settings["trees"]):
        device.call(slopes, ["y", "pred"], ["g", "h"])
        for name, rows in (("nodes", len(train)), ("nodes_all", len(own))):
            device.put(name, 0, None if device.rank else np.ones((1, rows), np.float32))
        for level in range(depth):
            device.call(gains, ["a", "b", "g", "h", "nodes"], ["split"])
            chosen = device.open("split", both=True)
            lefts = []
            for at, split in enumerate(np.asarray(chosen).tolist()):
                owner, place = (0, split) if split < sizes[0] else (1, split - sizes[0])
                column = mine[:, place][None, :] if device.rank == owner else None
                for name, where in (("left", train), ("left_all", np.arange(len(own)))):
                    device.put(f"{name}{level}{at}", owner, None if column is None else column[:, where])
                lefts.append(f"{level}{at}")
            for nodes, left in (("nodes", "left"), ("nodes_all", "left_all")):
                device.call(children, [nodes, *(f"{left}{each}" for each in lefts)], [nodes])
        device.call(leaves, ["g", "h", "nodes"], ["weights"])
        device.call(added, ["pred", "nodes", "weights"], ["pred"])
        device.call(added, ["score", "nodes_all", "weights"], ["score"])
    return "score"


def _share(device: Device, own: Array, labels: Array, train: Array) -> int:
    """Share all columns and the labels of training rows; returns the number of columns of both."""
    for rank, name in enumerate("ab"):
        for suffix, rows in (("", train), ("_all", np.arange(len(own)))):
            device.put(f"{name}{suffix}", rank, own[rows].astype(np.float32) if device.rank == rank else None)
    device.put("y", 0, None if device.rank else labels[:, None].astype(np.float32))
    return sum(_sizes(device, own.shape[1]))


def _sizes(device: Device, mine: int) -> list[int]:
    return [int(each) for each in device.link.all_gather(str(mine))]


def main() -> None:
    """Run one party: its rank, its file, the settings as JSON, and the file of results."""
    rank, given, settings, out = int(sys.argv[1]), np.load(sys.argv[2]), json.loads(sys.argv[3]), Path(sys.argv[4])
    labels = given.get("labels")
    before, began = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    device = Device(rank, settings["addresses"], settings["protocol"])
    kind = {"logistic": logistic, "network": network, "boosting": boosting}[settings["model"]]
    scores = device.open(kind(device, given["columns"], labels, given["train"], settings))
    seconds = time.perf_counter() - began
    used = resource.getrusage(resource.RUSAGE_SELF)
    found: dict[str, Any] = {} if scores is None else {"scores": np.asarray(scores, dtype=float).ravel()}
    np.savez(out, wall=seconds, cpu=used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime, **found)
    device.link.barrier()
    device.link.stop_link()


if __name__ == "__main__":
    main()
