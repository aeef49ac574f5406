"""A party's part of the model with its optimiser and protections, and its form in a checkpoint."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from cutlayer.channel import Kind, Message, Port
from cutlayer.config import Job, OptimizerConfig
from cutlayer.config.guard import Alarm
from cutlayer.data.batches import Schedule
from cutlayer.data.ids import DIGEST_BYTES
from cutlayer.errors import CheckpointError
from cutlayer.kernels.fits.optimizers import SGD, Adam, AdamW
from cutlayer.parties.compute.device import CPU
from cutlayer.parties.drive.random_state import RandomState
from cutlayer.parties.guards.guard import Guard
from cutlayer.parties.session.checkpoint import State
from cutlayer.protections.contract.chain import Chain
from cutlayer.protections.contract.coverage import HOOK_OF

_RELEASE_KINDS = frozenset({Kind.EMBEDDING, Kind.EVALUATION, Kind.RELEASE, Kind.GRADIENT, Kind.LABELS, Kind.EPOCH_END})
"""Messages that depend on the sender's rows or labels."""


class PartyState:
    """Modules, optimiser, protections and counts of one party.

    Args:
        modules: Modules by name: `bottom` and, on the active side, `top`.
        optimizer: Settings of the optimiser.
        chain: The party's protections.
        rows: Digest of the ids of the common rows, in their order.
        ports: Ports to the peers; every message that a protection must have made is compared with what it made, before
            it leaves.
        wrap: Function applied to the optimiser of a party that attacks through it.
        before_release: Called before each message that depends on this party's rows or labels.
        device: Device that the modules are moved to. A checkpoint has no device: it is written from the CPU's memory,
            and read back to the device of the party that resumes.

    Attributes:
        guard: Scrutiny of what arrives, if any; what it has seen is part of a checkpoint.
    """

    def __init__(
        self,
        modules: Mapping[str, nn.Module],
        optimizer: OptimizerConfig,
        chain: Chain,
        rows: bytes,
        ports: Iterable[Port],
        wrap: Callable[[torch.optim.Optimizer], torch.optim.Optimizer] | None = None,
        before_release: Callable[[], None] | None = None,
        device: torch.device = CPU,
    ) -> None:
        self.device = device
        # Before the optimiser, which holds the parameters as they are on the device.
        self.modules = nn.ModuleDict(modules).to(device)
        self.optimizer = build_optimizer(optimizer, list(self.modules.parameters()))
        if wrap is not None and self.optimizer is not None:
            self.optimizer = wrap(self.optimizer)
        self.chain = chain
        self.rows = rows.hex()
        self.sent: Counter[str] = Counter()
        self.before_release = before_release
        self.guard: Guard | None = None
        for port in ports:
            port.inspect = partial(self._inspect, chain)

    def _inspect(self, chain: Chain, message: Message) -> None:
        """Let the chain compare a message with the values that it returned; then count the message.

        It is the chain that the party was built with, whatever makes the values by now.
        """
        kind = message.kind
        if kind in _RELEASE_KINDS:
            self.charge()
        if kind in HOOK_OF:
            chain.sending(kind, message.receiver, next(iter(message.tensors.values())))
            if kind is not Kind.RELEASE:  # counted when it is drawn: it may be sent again, or by a resumed run
                self.sent[kind.value] += 1

    def charge(self) -> None:
        """Count the run, if that is not done yet, before something is released."""
        if self.before_release is not None:
            self.before_release()

    @property
    def parameters(self) -> int:
        """Number of trained numbers."""
        return sum(parameter.numel() for parameter in self.modules.parameters())

    def snapshot(self) -> State:
        """Tensors and plain values that `load` continues from, the random state included."""
        tensors = {f"module/{name}": tensor for name, tensor in self.modules.state_dict().items()}
        tensors["random"], gpu = RandomState.current(self.device)
        if gpu is not None:
            tensors["random_gpu"] = gpu
        chain = _extract_tensors(self.chain.state_dict(), "chain", tensors)
        plain: dict[str, Any] = {"rows": self.rows, "sent": dict(self.sent), "chain": chain}
        return {name: tensor.cpu() for name, tensor in (tensors | self._optimizer_tensors()).items()}, plain

    def with_guard(self, state: State) -> State:
        """A state with what the guard has seen."""
        return state if self.guard is None else with_part(state, "guard", *self.guard.snapshot())

    @property
    def alarms(self) -> tuple[Alarm, ...]:
        """Alarms of the guard."""
        return () if self.guard is None else tuple(self.guard.alarms)

    def _optimizer_tensors(self) -> dict[str, Tensor]:
        """State of the optimiser, for `_load_optimizer`."""
        states = {} if self.optimizer is None else self.optimizer.state_dict()["state"]
        return {
            f"optimizer/{index}/{name}": torch.as_tensor(value).cpu()
            for index, state in states.items()
            for name, value in state.items()
        }

    def load(self, state: State) -> None:
        """Continue from `state`.

        Raises:
            CheckpointError: The checkpoint is of other rows or of a model of another shape, or is incomplete.
        """
        try:
            check_same_rows(state[1]["rows"], self.rows)
            self.load_weights(state)
            self._load_rest(*state)
        except (KeyError, TypeError, ValueError, RuntimeError) as mismatch:
            raise CheckpointError(f"the checkpoint does not fit the job: {mismatch!r}; start again") from None

    def _load_rest(self, tensors: Mapping[str, Tensor], plain: Mapping[str, Any]) -> None:
        RandomState(tensors["random"], tensors.get("random_gpu")).restore(self.device)
        self.sent = Counter({name: int(count) for name, count in plain["sent"].items()})
        self.chain.load_state_dict(_insert_tensors(plain["chain"], tensors))
        if self.optimizer is not None:
            _load_optimizer(self.optimizer, tensors)
        if self.guard is not None:
            self.guard.load(*part_of((dict(tensors), dict(plain)), "guard"))

    def load_weights(self, state: State) -> None:
        """Load the weights alone, for evaluation."""
        try:
            self.modules.load_state_dict(part_of(state, "module")[0])
        except RuntimeError as mismatch:
            wanted = "the weights of the job's model in the checkpoint"  # the library's words name neither
            raise CheckpointError.expected(wanted, "others", "restore the run folder, or start a new run") from mismatch


def restore_chain(chain: Chain, state: State) -> None:
    """Give a party's protections, which are set up, their state in a checkpoint.

    Raises:
        CheckpointError: It is of other protections, or the release log has fewer lines than the checkpoint states.
    """
    try:
        chain.load_state_dict(_insert_tensors(state[1]["chain"], state[0]))
    except (AttributeError, KeyError, TypeError, ValueError, RuntimeError) as mismatch:
        raise CheckpointError(f"the checkpoint does not fit the protections of {chain.party}: {mismatch!r}") from None


def build_optimizer(config: OptimizerConfig, parameters: list[nn.Parameter]) -> torch.optim.Optimizer | None:
    """The optimiser of one party, fused: a single pass over all parameters instead of one per operation."""
    if not parameters:
        return None
    if config.kind == "sgd":
        return SGD(parameters, lr=config.lr, momentum=config.momentum, weight_decay=config.weight_decay, fused=True)
    kind = AdamW if config.kind == "adamw" else Adam
    return kind(parameters, lr=config.lr, weight_decay=config.weight_decay, fused=True)


def _load_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Load the state of an optimiser from a checkpoint's tensors."""
    whole = optimizer.state_dict()
    whole["state"] = {}
    for key, tensor in part_of((dict(tensors), {}), "optimizer")[0].items():
        index, name = key.split("/", 1)
        whole["state"].setdefault(int(index), {})[name] = tensor
    optimizer.load_state_dict(whole)


def _extract_tensors(value: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    """Replace tensors in a nested mapping by their names, collecting them."""
    if isinstance(value, Tensor):
        tensors[path] = value
        return {"tensor": path}
    if isinstance(value, Mapping):
        return {key: _extract_tensors(inner, f"{path}/{key}", tensors) for key, inner in value.items()}
    return value


def _insert_tensors(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Invert `_extract_tensors`."""
    if isinstance(value, Mapping):
        if value.keys() == {"tensor"}:
            return tensors[value["tensor"]]
        return {key: _insert_tensors(inner, tensors) for key, inner in value.items()}
    return value


def with_part(state: State, name: str, tensors: Mapping[str, Tensor], plain: Mapping[str, Any]) -> State:
    """A state with further tensors and plain values under a name."""
    named = {f"{name}/{key}": tensor for key, tensor in tensors.items()}
    return {**state[0], **named}, {**state[1], name: plain}


def part_of(state: State, name: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and plain values that `with_part` added under a name; empty where it added none."""
    prefix = f"{name}/"
    tensors = {key.removeprefix(prefix): tensor for key, tensor in state[0].items() if key.startswith(prefix)}
    return tensors, state[1].get(name, {})


def order_with_batches(job: Job, order: bytes, schedule: Schedule) -> bytes:
    """Digest of the common rows and their batches: the number of batches by ids is derived from what a peer states.

    By another number, rows would come in other batches after a resume than before, and be released again uncounted.

    Args:
        job: The shared job.
        order: Digest of the ids of the common rows, in their order.
        schedule: The batches.
    """
    return order + schedule.steps_per_epoch.to_bytes(8, "little") if job.draws_batches else order


def rows_of_order(stored: str) -> str:
    """Digest of the common rows alone, of what `order_with_batches` made; both in hexadecimal digits."""
    return stored[: 2 * DIGEST_BYTES]


def check_same_rows(stored: str, rows: str) -> None:
    """Raise `CheckpointError` unless a checkpoint is of the common rows, by their digests in hexadecimal digits."""
    if stored != rows:
        wanted = "the rows the run was begun with, in every party's table"
        raise CheckpointError.expected(wanted, "other common rows", "restore them, or start a new run")
