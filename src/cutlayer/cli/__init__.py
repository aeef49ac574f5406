"""The command line, one file per verb."""

from cutlayer.cli import (  # noqa: F401 (each file registers its verb)
    align,
    audit,
    check,
    demo,
    doctor,
    export,
    init,
    keys,
    ledger,
    list_,
    nvflare,
    party,
    party_predict,
    predict,
    recommend,
    release,
    report,
    run,
    schema,
    serve,
    sweep,
    trail,
)
from cutlayer.cli.app import app, main

__all__ = ["app", "main"]

_ORDER = (
    *("demo", "init", "check", "run", "party", "nvflare", "align", "release", "party_predict", "predict", "serve"),
    *("export", "audit", "report", "ledger", "sweep", "recommend", "list_", "schema", "doctor", "api_key"),
)
"""The functions of the verbs as `cutlayer --help` lists them: roughly in the order in which a user needs them."""

app.registered_commands.sort(key=lambda verb: _ORDER.index(getattr(verb.callback, "__name__", "")))
