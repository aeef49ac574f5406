"""A protection set up as in a run, and views to try it on."""

from dataclasses import replace

import torch

from cutlayer.problem.task import Task
from cutlayer.protections import build
from cutlayer.protections.contract.base import Context
from cutlayer.protections.contract.chain import Chain
from cutlayer.protections.contract.keyed_noise import Noise
from cutlayer.protections.contract.views import ActiveView, Mode

KEY = bytes(range(32))


def context(classes=2, kind=None, **other):
    kind = kind or ("binary" if classes == 2 else "multiclass")
    base = Context(
        party="bank",
        peers=("telco", "shop"),
        widths={"telco": 4, "shop": 4},
        task=Task(kind, () if kind == "regression" else tuple("abcdefghijkl"[:classes])),
        labels=None,
        training=torch.arange(100),
        secret=KEY,
        noise=Noise(KEY),
        label_column="default",
        epochs=2,
        batch_size=10,
    )
    return replace(base, **other)


def protection(name, options, **other):
    built = build(name, options, "privacy")
    built.setup(context(**other))
    return built


def saved(built):
    """The state of a protection as a checkpoint holds it."""
    return Chain("bank", [built]).state_dict()


def resume(fresh, state):
    """Continue a protection from such a state."""
    Chain("bank", [fresh]).load_state_dict(state)


def view(labels=None, step=0, embeddings=None, n=8):
    labels = torch.zeros(n, dtype=torch.int64) if labels is None else labels
    return ActiveView(Mode.TRAIN, 0, step, torch.arange(len(labels)), labels, embeddings or {})


def gradients(n, width, classes=2, seed=0, scale=1e-3, share=0.3):
    """Float32 gradients of classes with means and spreads of their own, and their labels."""
    draw = torch.Generator().manual_seed(seed)
    labels = (
        (torch.rand(n, generator=draw) < share).long()
        if classes == 2
        else torch.randint(0, classes, (n,), generator=draw)
    )
    means = torch.randn(classes, width, generator=draw)
    spreads = 0.3 + 0.4 * torch.arange(classes)
    g = means[labels] + spreads[labels][:, None] * torch.randn(n, width, generator=draw)
    return scale * g, labels
