"""Two tiny parties that learn together, to be run in one process or two."""

import torch

from cutlayer.channel import Kind
from cutlayer.kernels.fits.optimizers import SGD

STEPS = 20


def _model(seed, width, out):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return torch.nn.Linear(width, out), torch.randn(64, width)


def active(port):
    top, _ = _model(0, 8, 1)
    labels = (torch.arange(64) % 2).float().reshape(-1, 1)
    optimizer = SGD(top.parameters(), 0.5)
    losses = []
    for step in range(STEPS):
        message = yield port
        embedding = message.tensors["embedding"].requires_grad_()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(top(embedding), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        port.send(Kind.GRADIENT, epoch=0, step=step, tensors={"gradient": embedding.grad})
        losses.append(loss.item())
    return losses


def passive(port):
    bottom, inputs = _model(1, 5, 8)
    optimizer = SGD(bottom.parameters(), 0.5)
    for step in range(STEPS):
        embedding = bottom(inputs)
        port.send(Kind.EMBEDDING, epoch=0, step=step, tensors={"embedding": embedding})
        message = yield port
        optimizer.zero_grad()
        embedding.backward(message.tensors["gradient"])
        optimizer.step()
    return "done"


def run_here(first, second):
    """Resume each party whenever what it waits for is there; returns what the first returns."""
    waiting = {party: next(party) for party in (first, second)}
    results = {}
    while waiting:
        for party, port in list(waiting.items()):
            if port.arrived:
                try:
                    waiting[party] = party.send(port.arrived.popleft())
                except StopIteration as finished:
                    results[party] = finished.value
                    del waiting[party]
    return results[first]
