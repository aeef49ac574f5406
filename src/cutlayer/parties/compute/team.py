"""The workers of one party: processes that share its model and divide every batch among them.

The first worker leads: it alone holds the party's keys, true labels, protections, ledger and checkpoints, and runs
the protocol. All others compute. What a protection needs of the whole batch is gathered at the leader, and what it
returned is scattered, so that workers together draw what one worker draws.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor, nn
from torch import distributed as dist
from torch._C._distributed_c10d import GradBucket
from torch.nn.parallel import DistributedDataParallel

from cutlayer.data.batches import micro_batches
from cutlayer.errors import ConfigError, PeerLost
from cutlayer.parties.compute.step_order import StepOrder

LEADER = 0
_BACKENDS = ("gloo", "nccl")
"""Their errors are plain `RuntimeError`s, whose messages contain these names."""


class Team:
    """This process among the workers of its party.

    Args:
        rank: Number of this worker; 0 leads.
        size: Number of workers.
    """

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size

    @property
    def leads(self) -> bool:
        """Whether this worker is the first."""
        return self.rank == LEADER

    def parts(self, batch: Tensor) -> tuple[Tensor, ...]:
        """The part of each worker of a tensor (n, ...) with an entry for each row of a batch; the last may be empty."""
        parts = micro_batches(batch, self.size)
        return parts + (batch[:0],) * (self.size - len(parts))

    def part(self, batch: Tensor) -> Tensor:
        """This worker's part."""
        return self.parts(batch)[self.rank]

    def gather(self, part: Tensor, rows: int) -> Tensor | None:
        """The parts of all workers in one tensor, at the leader; `None` elsewhere.

        Args:
            part: This worker's part, float32 (m, width).
            rows: Number of rows of the batch.
        """
        with together():
            if not self.leads:
                if len(part):
                    dist.send(part.contiguous(), LEADER)
                return None
            whole = part.new_empty((rows, *part.shape[1:]))
            for rank, target in enumerate(self.parts(whole)):
                if rank == LEADER:
                    target.copy_(part)
                elif len(target):
                    dist.recv(target, rank)
            return whole

    def scatter(self, whole: Tensor | None, like: Tensor) -> Tensor:
        """This worker's part of a tensor that the leader has.

        Args:
            whole: At the leader float32 (n, width); `None` elsewhere.
            like: A tensor of the part's shape and type.
        """
        with together():
            if whole is None:
                part = torch.empty_like(like)
                if len(part):
                    dist.recv(part, LEADER)
                return part
            parts = self.parts(whole)
            for rank, part in enumerate(parts):
                if rank != LEADER and len(part):
                    dist.send(part.contiguous(), rank)
            return parts[LEADER]

    def total(self, value: float) -> float:
        """The sum of a number over all workers, at each of them."""
        summed = torch.tensor(value, dtype=torch.float64)
        with together():
            dist.all_reduce(summed)
        return float(summed)

    def lead(self, order: StepOrder | None) -> None:
        """Have all workers take a step; `None` ends their work."""
        with together():
            if order is None:
                dist.broadcast(torch.full((5,), -1), LEADER)
                return
            head = (len(order.rows), order.epoch, order.step, order.global_step, int(order.record))
            dist.broadcast(torch.tensor(head), LEADER)
            dist.broadcast(order.rows.contiguous(), LEADER)

    def follow(self) -> StepOrder | None:
        """Wait for the leader's next step; `None` at the end."""
        with together():
            head = torch.empty(5, dtype=torch.int64)
            dist.broadcast(head, LEADER)
            rows_count, epoch, step, global_step, record = head.tolist()
            if rows_count < 0:
                return None
            rows = torch.empty(rows_count, dtype=torch.int64)
            dist.broadcast(rows, LEADER)
            return StepOrder(epoch, step, global_step, rows, bool(record))

    def share(self, tensors: Mapping[str, Tensor], plain: Mapping[str, Any]) -> None:
        """Send tensors and plain values to all workers, as safetensors and JSON; a worker takes them by `shared`."""
        _broadcast(save({name: t.detach().contiguous() for name, t in tensors.items()}))
        _broadcast(json.dumps(plain).encode())

    def shared(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return what the leader shares."""
        tensors = load(_broadcast())
        plain: dict[str, Any] = json.loads(_broadcast())
        return tensors, plain

    def parallel(self, module: nn.Module) -> nn.Module:
        """The module under PyTorch's data parallelism, with the leader's weights at every worker.

        Gradients are summed and not averaged: each worker's are those of its rows' part of the batch's mean loss, so
        that parts of unequal size count by their rows.
        """
        if not any(parameter.requires_grad for parameter in module.parameters()):
            return module
        with together():
            # A weight that no row of a step reaches has no gradient, as with one worker: its optimiser skips it.
            parallel = DistributedDataParallel(module, find_unused_parameters=True)
        # A lambda: PyTorch compares annotations with the class, and those of this file are texts.
        parallel.register_comm_hook(None, lambda _, bucket: _summed(bucket))
        return parallel


def _broadcast(content: bytes = b"") -> bytes:
    """Send the leader's content to all workers; returns it at each of them."""
    length = torch.tensor([len(content)])
    with together():
        dist.broadcast(length, LEADER)
        received = torch.empty(int(length), dtype=torch.uint8)
        if content:
            received = torch.frombuffer(bytearray(content), dtype=torch.uint8)
        dist.broadcast(received, LEADER)
    return received.numpy().tobytes()


def _summed(bucket: GradBucket) -> torch.futures.Future[Tensor]:
    """Sum a bucket of gradients over all workers."""
    future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
    summed: torch.futures.Future[Tensor] = future.then(lambda done: done.value()[0])
    return summed


@contextmanager
def joined(rank: int, size: int, patience: float) -> Iterator[Team]:
    """Join the other workers of this party, at the address that `torchrun` set in the environment.

    Args:
        rank: Number of this worker.
        size: Number of workers.
        patience: Seconds to wait for another worker.

    Raises:
        ConfigError: The environment names no address.
        PeerLost: The workers cannot be reached.
    """
    try:
        dist.init_process_group("gloo", rank=rank, world_size=size, timeout=timedelta(seconds=patience))
    except ValueError as missing:
        raise ConfigError(f"the workers of this party cannot meet: {missing}; start them by torchrun") from None
    except (RuntimeError, dist.DistError) as failure:
        raise PeerLost(f"the workers of this party cannot meet: {_short(failure)}") from None
    try:
        yield Team(rank, size)
    finally:
        dist.destroy_process_group()


@contextmanager
def together() -> Iterator[None]:
    """Turn a failed exchange with another worker into an error that says so.

    Raises:
        PeerLost: A worker of this party ended, or did not answer.
    """
    try:
        yield
    except RuntimeError as failure:
        if not isinstance(failure, dist.DistError) and not any(name in str(failure).lower() for name in _BACKENDS):
            raise  # of the model
        remedy = "start all of them again with --resume"
        raise PeerLost(f"lost a worker of this party ({_short(failure)}); {remedy}") from None


def _short(failure: Exception) -> str:
    return str(failure).strip().splitlines()[0][:160] if str(failure).strip() else type(failure).__name__
