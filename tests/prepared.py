"""What every process computes at its first call, computed once before processes are forked."""

from __future__ import annotations

import gc

from cutlayer.cli.app import _command
from cutlayer.config import FrozenModel
from cutlayer.report.html import environment
from cutlayer.training.process import _openblas_with_scipy

TEMPLATES = ("blocks.html.j2", "report.html.j2", "page.html.j2")
"""Those of pages, and what both import when they are rendered."""


def prepare() -> None:
    """Read the signatures of all verbs, build the schemas of all models, compile the templates of reports, and look for
    libraries of linear algebra.

    To do so takes a party that is forked as long as its part of a small job. What is imported and computed by now is
    hidden from the garbage collector: a full collection of a forked process would else copy the pages of all objects
    that it looks at, which takes longer still.
    """
    _command()
    _build(FrozenModel)
    for template in TEMPLATES:
        environment("cutlayer.report").get_template(template)
    _openblas_with_scipy()
    gc.freeze()


def _build(model: type[FrozenModel]) -> None:
    for each in model.__subclasses__():
        each.model_rebuild()
        _build(each)
