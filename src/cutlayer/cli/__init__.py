"""The command line, one file per verb."""

from cutlayer.cli import (
    align,
    audit,
    check,
    demo,
    export,
    init,
    keys,
    ledger,
    list_,
    party,
    party_predict,
    predict,
    recommend,
    report,
    run,
    schema,
    serve,
    sweep,
    trail,
)
from cutlayer.cli.app import app, main

__all__ = [
    "align",
    "app",
    "audit",
    "check",
    "demo",
    "export",
    "init",
    "keys",
    "ledger",
    "list_",
    "main",
    "party",
    "party_predict",
    "predict",
    "recommend",
    "report",
    "run",
    "schema",
    "serve",
    "sweep",
    "trail",
]

_VERBS = (
    "demo",
    "init",
    "check",
    "run",
    "party",
    "align",
    "party_predict",
    "predict",
    "serve",
    "export",
    "audit",
    "report",
    "ledger",
    "sweep",
    "recommend",
    "list_",
    "schema",
    "api_key",
)
"""In the order of a first day with cutlayer; `--help` lists them so."""

app.registered_commands.sort(key=lambda verb: _VERBS.index(getattr(verb.callback, "__name__", "")))
