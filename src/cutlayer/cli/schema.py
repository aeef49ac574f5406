"""`cutlayer schema`: the JSON schema of a job file, for editors, and of the results that a run writes."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from cutlayer.cli.app import print_json
from cutlayer.cli.verb import entries_of, verb

DIALECT = "https://json-schema.org/draft/2020-12/schema"


class Subject(StrEnum):
    """Files that have a schema."""

    JOB = "job"
    SUMMARY = "summary"
    AUDIT = "audit"
    REPORT = "report"
    PASSIVE_REPORT = "passive-report"
    PRIVACY_CARD = "privacy-card"


@verb()
def schema(of: Subject = Subject.JOB, *, json: bool = False) -> None:
    """Print the JSON schema of job.yaml, for editors, or of a file of results.

    Args:
        of: job.yaml, or a file of results that a run writes.

    Example: cutlayer schema report
    """
    del json  # the schema is JSON either way
    print_json({"$schema": DIALECT, **described(job_schema() if of is Subject.JOB else result_schema(of))})


def result_schema(of: Subject) -> dict[str, Any]:
    """The schema of a file of results."""
    from cutlayer.results.audit import Audit
    from cutlayer.results.document import Document
    from cutlayer.results.passive import PassiveReport
    from cutlayer.results.privacy_card import PrivacyCard
    from cutlayer.results.report import Report
    from cutlayer.results.summary import Summary

    kinds: dict[Subject, type[Document]] = {
        Subject.SUMMARY: Summary,
        Subject.AUDIT: Audit,
        Subject.REPORT: Report,
        Subject.PASSIVE_REPORT: PassiveReport,
        Subject.PRIVACY_CARD: PrivacyCard,
    }
    return kinds[of].model_json_schema(mode="serialization")


def described(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with a description of each property: its entry among the attributes of the docstring of its class."""
    for section in (schema, *schema.get("$defs", {}).values()):
        text, entries = entries_of(section.get("description", ""), "Attributes")
        if not entries:
            continue
        section["description"] = text
        for name, entry in entries.items():
            if name in section.get("properties", {}):
                section["properties"][name].setdefault("description", entry)
    return schema


def job_schema() -> dict[str, Any]:
    """The job's schema with the sections of every registered protection and model in it."""
    from cutlayer.config import BudgetConfig, Job
    from cutlayer.config.party import BUDGET, LABEL_FREE, LabelFreeConfig
    from cutlayer.config.protect_labels import PROTECT_LABELS, ProtectLabelsConfig
    from cutlayer.data.sources import SOURCES
    from cutlayer.models import BOTTOMS, TOPS
    from cutlayer.models.bottom_fits import FITS
    from cutlayer.protections import REGISTRY as PROTECTIONS

    whole = Job.model_json_schema()
    definitions = whole["$defs"]
    for name, kind in PROTECTIONS.items():
        definitions[f"protection_{name}"] = kind.config.model_json_schema()
    privacy = {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            BUDGET: {"$ref": f"#/$defs/{BUDGET}"},
            PROTECT_LABELS: {"$ref": f"#/$defs/{PROTECT_LABELS}"},
            LABEL_FREE: {"anyOf": [{"$ref": f"#/$defs/{LABEL_FREE}"}, {"type": "null"}]},
            **{name: {"type": ["object", "null"]} for name in PROTECTIONS.plugins()},
            **{name: {"anyOf": [{"$ref": f"#/$defs/protection_{name}"}, {"type": "null"}]} for name in PROTECTIONS},
        },
    }
    definitions[BUDGET] = BudgetConfig.model_json_schema()
    definitions[PROTECT_LABELS] = ProtectLabelsConfig.model_json_schema()
    definitions[LABEL_FREE] = LabelFreeConfig.model_json_schema()
    definitions["PartyConfig"]["properties"]["privacy"] = privacy
    definitions["TableConfig"]["properties"]["format"]["enum"] = ["auto", *SOURCES]
    for name, fit in FITS.items():
        definitions[f"fit_{name}"] = {**fit.config.model_json_schema(), "required": ["kind"]}
    fits: list[dict[str, Any]] = [{"$ref": f"#/$defs/fit_{name}"} for name in FITS]
    if foreign := [*FITS.plugins()]:
        fits.append({"type": "object", "required": ["kind"], "properties": {"kind": {"enum": foreign}}})
    definitions["PartyConfig"]["properties"]["fit"] = {"anyOf": [*fits, {"type": "null"}]}
    for key, text in (("table", "path of the table"), ("id", "name of the id column, or @row")):
        section = definitions["PartyConfig"]["properties"][key]
        section["anyOf"] = [{"type": "string", "description": text}, *section["anyOf"]]
    for position, kinds in (("bottom", BOTTOMS), ("top", TOPS)):
        names = []
        for name, model in kinds.items():
            definitions[f"{position}_{name}"] = {**model.config.model_json_schema(), "required": ["kind"]}
            names.append({"$ref": f"#/$defs/{position}_{name}"})
        model_schema: dict[str, Any] = {"anyOf": names}
        by_party = {"type": "object", "additionalProperties": model_schema, "not": {"required": ["kind"]}}
        choice = {"anyOf": [*names, by_party]} if position == "bottom" else model_schema
        definitions["ModelConfig"]["properties"][position] = choice
    return whole
