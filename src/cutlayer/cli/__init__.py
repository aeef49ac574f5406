"""The command line, one file per verb."""

from cutlayer.cli import audit, check, demo, list_, party, report, run, schema
from cutlayer.cli.app import app, main

__all__ = ["app", "audit", "check", "demo", "list_", "main", "party", "report", "run", "schema"]
