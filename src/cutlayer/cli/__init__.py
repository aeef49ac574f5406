"""The command line, one file per verb."""

from importlib import import_module

from cutlayer.cli.app import app, main

__all__ = ["app", "main"]

_FILES = (
    "demo",
    "init",
    "check",
    "approve",
    "run",
    "party",
    "align",
    "exchange",
    "forget",
    "pilot",
    "release",
    "party_predict",
    "predict",
    "audit",
    "report",
    "ledger",
    "list_",
    "schema",
    "doctor",
    "keys",
    "trail",
)
"""The files of the verbs as `cutlayer --help` lists them: roughly in the order in which a user needs them."""

for _file in _FILES:
    import_module(f"{__name__}.{_file}")

# Some verbs import others, and so are registered after them.
app.registered_commands.sort(key=lambda verb: _FILES.index(getattr(verb.callback, "__module__", "").split(".")[-1]))
