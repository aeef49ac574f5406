"""The JSON schema for editors: it accepts what `check` accepts and refuses what it refuses."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from cutlayer import demo
from tests.cli.jobs import JOB, QuietPlace, changed

TYPES = {
    "object": lambda value: isinstance(value, Mapping),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
}
SAID_ELSEWHERE = {
    "$schema",
    "$defs",
    "title",
    "description",
    "default",
    "format",
    "examples",
    "discriminator",
    "allOf",
    "readOnly",
}


def faults(schema: Mapping[str, Any], value: Any, root: Mapping[str, Any], at: str = "") -> Iterator[str]:
    """Where a value breaks a schema, by the keywords that ours uses; an unknown keyword is an error of this test."""
    for word, wanted in schema.items():
        if word in SAID_ELSEWHERE:
            continue
        if word == "$ref":
            yield from faults(root["$defs"][wanted.rpartition("/")[2]], value, root, at)
        elif word == "anyOf":
            if all(any(True for _ in faults(each, value, root, at)) for each in wanted):
                yield at
        elif word == "not":
            if not list(faults(wanted, value, root, at)):
                yield at
        elif word in RULES:
            if not RULES[word](wanted, value):
                yield at
        elif isinstance(value, Mapping) and word == "properties":
            for key in wanted.keys() & value.keys():
                yield from faults(wanted[key], value[key], root, f"{at}.{key}")
        elif isinstance(value, Mapping) and word == "additionalProperties":
            for key in value.keys() - schema.get("properties", {}).keys():
                if wanted is False:
                    yield f"{at}.{key}"
                elif wanted is not True:
                    yield from faults(wanted, value[key], root, f"{at}.{key}")
        elif isinstance(value, Mapping) and word == "propertyNames":
            for key in value:
                yield from faults(wanted, key, root, f"{at}.{key}")
        elif isinstance(value, list) and word == "items":
            for index, item in enumerate(value):
                yield from faults(wanted, item, root, f"{at}.{index}")
        else:
            assert word in ("properties", "additionalProperties", "propertyNames", "items", "prefixItems"), word


RULES = {
    "type": lambda wanted, value: TYPES[wanted](value),
    "enum": lambda wanted, value: value in wanted,
    "const": lambda wanted, value: value == wanted,
    "required": lambda wanted, value: isinstance(value, Mapping) and set(wanted) <= value.keys(),
    "pattern": lambda wanted, value: not isinstance(value, str) or re.search(wanted, value),
    "minimum": lambda wanted, value: not TYPES["number"](value) or value >= wanted,
    "maximum": lambda wanted, value: not TYPES["number"](value) or value <= wanted,
    "exclusiveMinimum": lambda wanted, value: not TYPES["number"](value) or value > wanted,
    "exclusiveMaximum": lambda wanted, value: not TYPES["number"](value) or value < wanted,
    "minItems": lambda wanted, value: not isinstance(value, list) or len(value) >= wanted,
    "maxItems": lambda wanted, value: not isinstance(value, list) or len(value) <= wanted,
    "minLength": lambda wanted, value: not isinstance(value, str) or len(value) >= wanted,
    "maxLength": lambda wanted, value: not isinstance(value, str) or len(value) <= wanted,
}

RICH = changed(
    JOB,
    {
        "name": "all of it",
        "task": "binary",
        "parties.bank.table": {"path": "bank.csv", "delimiter": ",", "missing": ["", "?"]},
        "parties.bank.features": {"include": ["balance"], "numbers": {"transform": "log1p", "scale": "minmax"}},
        "parties.bank.privacy": {"label_dp": {"eps": 1}, "max_norm": None, "budget": {"epsilon": 2}},
        "parties.bank.audit": {"attacks": ["norm"], "every": "end", "fail_above": {"label_auc": 0.6}},
        "parties.telco.audit": {"attacks": "auto"},
        "model.bottom": {"bank": {"kind": "mlp"}, "telco": {"kind": "wide_deep", "wide": 2}},
        "model.top": {"kind": "python", "path": "mine:Top", "args": {"depth": 2}},
        "train.threads": "auto",
        "train.precision": "bf16",
        "parties.bank.device": "cuda:1",
        "train.early_stop": {"patience": 2},
        "train.optimizer": {"kind": "sgd", "lr": 0.1, "momentum": 0.9},
        "compare": ["undefended", "each"],
    },
)

BROKEN = [
    {"trian": {}},
    {"parties.bank.labl": "x"},
    {"parties.bank.role": "activ"},
    {"parties.bank.privacy": {"marvel_dp": None}},
    {"parties.bank.privacy": {"label_dp": {"eps": -1}}},
    {"parties.bank.privacy": {"label_dp": {"epsilon": 1}}},
    {"parties.bank.privacy": {"label_dp": {"eps": 1}, "budget": {"epsilon": 0}}},
    {"parties.bank.audit": {"fail_above": {"label_auc": 0.2}}},
    {"parties.bank.audit": {"fail_above": {"label_acu": 0.7}}},
    {"parties.bank.audit": {"attacks": "norm"}},
    {"model.bottom": {"kind": "mlp", "hiden": [4]}},
    {"model.bottom": {"kind": "mlp", "hidden": [0]}},
    {"model.bottom": {"bank": {"kind": "mpl"}, "telco": {"kind": "mlp"}}},
    {"model.top": {"kind": "mpl"}},
    {"train.epochs": 0},
    {"train.threads": "all"},
    {"train.precision": "bfloat16"},
    {"parties.bank.device": "gpu"},
    {"train.optimizer": {"lr": 0}},
    {"train.split": {"tset": 0.1}},
    {"compare": ["undefend"]},
    {"task": "binry"},
]


@pytest.fixture(scope="module")
def schema(tmp_path_factory) -> Mapping[str, Any]:
    """The schema as the verb prints it; not to be changed."""
    return QuietPlace(tmp_path_factory.mktemp("schema")).call("schema").document()


def test_a_good_job_fits(place, schema):
    for job in (JOB, RICH, YAML(typ="safe", pure=True).load(demo.FOLDER / "job.yaml")):
        assert list(faults(schema, job, schema)) == []
    assert place.call("schema", "--json").document() == schema


@pytest.mark.parametrize("changes", BROKEN)
def test_what_check_refuses_does_not_fit(place, schema, changes):
    job = changed(RICH, changes)
    assert list(faults(schema, job, schema)), changes
    place.write(job)
    assert place.call("check", place.file).code == 2


def test_the_example_jobs_fit(schema):
    examples = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))
    for path in examples:
        assert list(faults(schema, YAML(typ="safe", pure=True).load(path), schema)) == [], path.name


@pytest.mark.skipif(importlib.util.find_spec("jsonschema") is None, reason="the package jsonschema is not installed")
def test_the_schema_itself_is_one(schema):
    import jsonschema

    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(RICH, schema)
    for changes in BROKEN:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(changed(RICH, changes), schema)


@pytest.mark.parametrize("name", ["summary", "audit", "report"])
def test_the_results_of_a_run_fit_their_schema(place, finished, name):
    schema = place.call("schema", name).document()
    document = json.loads((finished / f"{name}.json").read_text())
    assert list(faults(schema, document, schema)) == []
    assert list(faults(schema, {**document, "leaks_told": 1}, schema))
    broken = {key: value for key, value in document.items() if key != ("runs" if name == "audit" else "run")}
    assert list(faults(schema, broken, schema))


def test_there_is_no_schema_of_other_files(place):
    assert place.call("schema", "history").code == 2


def test_every_field_of_the_privacy_card_is_explained(place):
    schema = place.call("schema", "privacy-card").document()
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    for section in (schema, *schema["$defs"].values()):
        assert "Attributes" not in section["description"]
        for name, field in section["properties"].items():
            assert len(field["description"]) > 5, name
    value = schema["$defs"]["AttackEvidence"]["properties"]["undefended"]["description"]
    assert value.endswith("and where this run has none.")  # the second line of the entry too
