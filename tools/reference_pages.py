"""Fills the pages that list what is registered, such as all protections, from the classes when the site is built.

    python -m tools.reference_pages reference/attacks.md

It is a hook of MkDocs (`hooks` in mkdocs.yml), so that a page cannot differ from the code. The command prints a page as
the site has it. A page has its own text and, in it, a marker such as `<!-- protections -->` (`GENERATED` has all), or
`<!-- fields: CLASS -->` for the keys of a section of the configuration.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, cast, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

import cutlayer.audit.findings  # noqa: F401 (registers the checks)
from cutlayer.accounting.events import Event
from cutlayer.attacks import REGISTRY as ATTACKS
from cutlayer.audit.checks import CHECKS, Check
from cutlayer.channel.kinds import Kind
from cutlayer.channel.message import SHAPES
from cutlayer.cli.list_ import Catalogue, entries
from cutlayer.cli.verb import entries_of
from cutlayer.config import BudgetConfig, FrozenModel, Job, ServeConfig
from cutlayer.config.protect_labels import ProtectLabelsConfig
from cutlayer.models import BOTTOMS, TOPS
from cutlayer.models.bottom_fits import FITS
from cutlayer.models.sections import BottomKind, TopKind
from cutlayer.protections import REGISTRY
from cutlayer.protections.contract.base import Asset, Protection
from cutlayer.protections.contract.hooks import HOOKS
from cutlayer.results.finding import Finding
from cutlayer.results.run_files import CHANGED
from tests.conformance.table import PROTECTIONS

DOCS = Path(__file__).parents[1] / "docs"
FEATURES = "attacks on features: [measure feature leakage](../how-to/audit-features.md)"


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Put what is generated in place of its markers; called by MkDocs for every page."""
    return filled(page.file.src_uri, markdown)


def filled(uri: str, text: str) -> str:
    """A page, by its path in `docs/`, with what is generated in place of its markers."""
    keys = partial(keys_of, anchors={name: anchor for anchor, name in headed_fields(text)})
    return re.sub(r"<!-- fields: (\w+) -->", lambda mark: keys(job_sections()[mark[1]]), listed(uri, text))


def listed(uri: str, text: str) -> str:
    """A page with what is registered in place of its markers, and with those of fields as they are."""
    root = "../" * uri.count("/")
    for marker, write in GENERATED.items():
        if f"<!-- {marker} -->" in text:
            text = text.replace(f"<!-- {marker} -->", write().replace("](../", f"]({root}"))
    return text


def headed_fields(text: str) -> Iterator[tuple[str, str]]:
    """Each marker of fields, with the anchor of the heading above it."""
    for heading, name in re.findall(r"^#+ ([^\n]+)\n(?:(?!^#).)*?<!-- fields: (\w+) -->", text, re.M | re.S):
        yield re.sub(r"[^\w-]", "", heading.strip("`").lower().replace(" ", "-")), name


@cache
def job_sections() -> dict[str, type[BaseModel]]:
    """Every section of a job or of a private file that has no page of its kind, by the name of its class."""
    found: dict[str, type[BaseModel]] = {}
    waiting: list[type[BaseModel]] = [Job, BudgetConfig, ProtectLabelsConfig, ServeConfig]
    while waiting:
        section = waiting.pop()
        found[section.__name__] = section
        inner = [item for field in section.model_fields.values() for item in sections_in(field.annotation)]
        waiting += [each for each in inner if each.__name__ not in found]
    return found


def keys_of(section: type[BaseModel], anchors: Mapping[str, str]) -> str:
    """The table of a section's keys; a key that is a section of the page leads to it."""
    lines = ["| key | values | default | meaning |", "|---|---|---|---|"]
    for name, words, default, meaning in options(section, without=()):
        kinds = sections_in(section.model_fields[name].annotation)[:1]
        inner = [anchors[kind.__name__] for kind in kinds if kind.__name__ in anchors]
        words = words.replace("see below", f"[{inner[0]}](#{inner[0]})" if inner else "see below")
        default = default.replace("see below", "see there")
        lines.append(f"| `{name}` | {cell(words)} | {cell(default)} | {cell(linked(meaning))} |")
    return "\n".join(lines)


def guarantees() -> str:
    """What each protection guarantees, those with a theorem first."""
    parts = {name: part(inspect.getdoc(kind) or "", "Guarantee") for name, kind in REGISTRY.items()}
    formal = sorted(parts, key=lambda name: (parts[name].startswith("none"), name))
    lines = ["| protection | protects | guarantee |", "|---|---|---|"]
    for name in formal:
        kind = REGISTRY[name]
        lines.append(
            f"| [`{name}`](../reference/protections.md#{name}) | {kind.protects}, at the {kind.side} party "
            f"| {cell(linked(joined(parts[name])))} |"
        )
    return "\n".join(lines)


def findings() -> str:
    """Codes, severities, titles and remedies of all findings."""
    every: list[Check | Finding] = [*CHECKS, CHANGED]
    rows = (
        f"| [{check.code}](#{check.code.lower()}) | {check.severity} | {check.title} | {cell(check.remedy)} |"
        for check in every
    )
    return "\n".join(["| code | severity | title | remedy |", "|---|---|---|---|", *rows])


def messages() -> str:
    """What each kind of message means, and its fixed content."""
    lines = ["| message | meaning | content |", "|---|---|---|"]
    for kind in Kind:
        shape = SHAPES[kind]
        tensors = (f"`{name}` {str(dtype).removeprefix('torch.')}" for name, (dtype, _) in shape.tensors.items())
        content = ", ".join([*tensors, *(f"`{name}`" for name in shape.fields)])
        lines.append(f"| `{kind}` | {kind.meaning} | {content or 'nothing more'} |")
    return "\n".join(lines)


def hooks() -> str:
    """What a protection may override, on which side, and which protections do."""
    lines = ["| hook | side | what it does | used by |", "|---|---|---|---|"]
    for name in ("setup", *HOOKS, "event", "metrics", "epoch_metrics", "state_dict", "load_state_dict"):
        method = getattr(Protection, name)
        views = " ".join(map(str, method.__annotations__.values()))
        sides = {"ActiveView": "active", "PassiveView": "passive"}
        side = next((sides[view] for view in sides if view in views), "active" if name == "labels" else "its own")
        users = [f"`{kind}`" for kind, known in sorted(REGISTRY.items()) if name in vars(known)]
        used = ", ".join(users) or "none yet"
        does = joined((inspect.getdoc(method) or "").partition("\n\n")[0])
        lines.append(f"| `{name}` | {side} | {cell(does)} | {used if name in HOOKS else 'any'} |")
    return "\n".join(lines)


def events() -> str:
    """What the ledger knows of, and what neighbours differ in."""
    lines = ["| event | what it states |", "|---|---|"]
    lines += [f"| `{kind.__name__}` | {cell(first_sentence(inspect.getdoc(kind) or ''))} |" for kind in get_args(Event)]
    return "\n".join(lines)


def models() -> str:
    """Bottom models, then top models."""
    bottoms = [model_section("bottom", *kind) for kind in BOTTOMS.items()]
    return "\n".join([*bottoms, *(model_section("top", *kind) for kind in TOPS.items())])


def protection_section(name: str) -> str:
    """One protection."""
    kind = REGISTRY[name]
    does, _, rest = (inspect.getdoc(kind) or "").partition("\n\n")
    start = ", ".join(f"{key}: {value}" for key, value in kind.start.model_dump(exclude_unset=True).items())
    facts = {
        "acts at": f"the {kind.side} party, which it protects: {kind.protects}",
        "tasks": ", ".join(sorted(kind.tasks)),
        "not with": ", ".join(f"`{other}`" for other in sorted(kind.excludes)),
        "start with": f"`privacy: {{{name}: {{{start}}}}}`" if start else f"`privacy: {{{name}: }}`",
        "note": part(rest, "Advice").rstrip("."),
        "tested against": measured_by(name, kind),
        "bottom model": " and ".join(
            ["embeds every row on its own"] * kind.needs_row_independence
            + ["draws no random numbers, as dropout does"] * kind.needs_no_random_draws
        ),
        "guarantee": f"{first_sentence(part(rest, 'Guarantee'))} (docs/guarantees.md#all-protections)",
        "paper": kind.reference,
    }
    return section(name, does, facts, kind.config)


def attack_section(entry: Mapping[str, Any]) -> str:
    """One attack, as `cutlayer list attacks` has it."""
    facts = {
        key: ", ".join(value) or "nothing more" if isinstance(value, list) else value
        for key, value in entry.items()
        if key not in ("name", "description")
    }
    return section(entry["name"], entry["description"], facts, None)


def fit_section(name: str) -> str:
    """One kind of fit."""
    fit = FITS[name]
    facts = {
        "bottom model": f"`{fit.bottom}`" if fit.bottom else "any",
        "warm-up epochs": "required" if fit.needs_warmup else "not used",
    }
    text, _ = entries_of(inspect.getdoc(fit.config) or "", "Attributes")
    return section(name, text, facts, fit.config)


def model_section(side: str, name: str, kind: BottomKind | TopKind) -> str:
    """One kind of bottom or top model."""
    facts = {"write": f"`model: {{{side}: {{kind: {name}}}}}`"}
    if isinstance(kind, TopKind):
        facts["trained"] = "at once, from one release of each row" if kind.is_fitted else "by gradient steps"
    text, _ = entries_of(inspect.getdoc(kind.config) or "", "Attributes")
    return section(name, text, facts, kind.config, side)


def section(name: str, text: str, facts: Mapping[str, str], config: type[BaseModel] | None, side: str = "") -> str:
    """A heading, what it is, its properties and its settings."""
    title, anchor = (f"`{name}`, {side}", f"{name}-{side}") if side else (f"`{name}`", name)
    lines = [f"## {title} {{#{anchor}}}", ""]
    lines += [line for paragraph in text.split("\n\n") for line in (linked(joined(paragraph)), "")]
    lines += ["| property | value |", "|---|---|"]
    lines += [f"| {word} | {cell(linked(joined(value)))} |" for word, value in facts.items() if value]
    if config is not None:
        lines += settings(config)
    return "\n".join([*lines, ""])


def settings(config: type[BaseModel], key: str = "") -> list[str]:
    """A table of the settings, and one for each section among them."""
    rows = list(options(config))
    if not rows:
        return []
    lines = ["", f"`{key}`:", ""] if key else [""]
    lines += ["| setting | values | default | meaning |", "|---|---|---|---|"]
    lines += [f"| `{name}` | {' | '.join(cell(linked(word)) for word in words)} |" for name, *words in rows]
    for name, field in config.model_fields.items():
        for inner in sections_in(field.annotation):
            lines += settings(inner, name)
    return lines


def options(config: type[BaseModel], without: tuple[str, ...] = ("kind",)) -> Iterator[tuple[str, str, str, str]]:
    """Name, values, default and meaning of each setting."""
    meanings: dict[str, str] = {}
    for each in reversed(config.__mro__):
        meanings |= entries_of(inspect.getdoc(each) or "", "Attributes")[1]
    schemas = _schemas(config)
    for key, field in config.model_fields.items():
        if key not in without:
            yield key, values(schemas[key]), shown(field), meanings.get(key, "")


@cache
def _schemas(config: type[BaseModel]) -> Mapping[str, Mapping[str, Any]]:
    """The JSON schema of each key; that of a config takes longer than all that a page says of it."""
    properties: Mapping[str, Mapping[str, Any]] = config.model_json_schema().get("properties", {})
    return properties


def values(schema: Mapping[str, Any]) -> str:
    """The values of a setting in words, by its JSON schema."""
    if "anyOf" in schema:
        return " or ".join(values(each) for each in schema["anyOf"] if each.get("type") != "null")
    if "$ref" in schema or "allOf" in schema:
        return "see below"
    if choices := schema.get("enum", [schema["const"]] if "const" in schema else []):
        return ", ".join(f"`{choice}`" for choice in choices)
    kind = schema.get("type", "value")
    if kind == "array":
        return f"list of: {values((schema.get('prefixItems') or [schema.get('items', {})])[0])}"
    if kind == "object":
        inner = schema.get("additionalProperties", True)
        return "mapping" if inner is True else f"mapping to: {values(inner)}"
    words = {"boolean": "true, false", "string": "text", "integer": "integer", "number": "number"}
    return span(schema) or words.get(kind, kind)


def span(schema: Mapping[str, Any]) -> str:
    """The range of a number; empty where it has none."""
    low, above = schema.get("minimum"), schema.get("exclusiveMinimum")
    high, below = schema.get("maximum"), schema.get("exclusiveMaximum")
    upper = number(high) if high is not None else f"below {number(below)}" if below is not None else ""
    if low is not None:
        return f"{number(low)} to {upper}" if upper else f"{number(low)} or more"
    if above is not None:
        return f"above {number(above)}" + (f", {'up to ' if high is not None else ''}{upper}" if upper else "")
    return f"at most {upper}" if high is not None else upper


def number(bound: float) -> str:
    """A bound as text: whole numbers with commas."""
    return f"{int(bound):,}" if bound == int(bound) else f"{bound:g}"


def sections_in(annotation: object) -> list[type[BaseModel]]:
    """The sections that a setting can be."""
    if isinstance(annotation, type) and issubclass(annotation, FrozenModel):
        return [cast("type[BaseModel]", annotation)]
    return [item for argument in getattr(annotation, "__args__", ()) for item in sections_in(argument)]


def shown(field: FieldInfo) -> str:
    """The default of a setting as a job would write it."""
    if field.is_required():
        return "required"
    default = field.get_default(call_default_factory=True)
    if isinstance(default, BaseModel):
        return "see below"
    if default is None:
        return "none"
    if isinstance(default, tuple):
        return f"`{list(default)}`"
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def measured_by(name: str, kind: type[Protection[Any]]) -> str:
    """What a protection is tested against; the suite has attacks on labels alone."""
    if kind.protects == Asset.FEATURES:
        return f"on labels: {', '.join(attacks(name))}; {FEATURES}"
    return ", ".join(attacks(name)) or "the loss of utility when a party leaves"


def attacks(name: str) -> list[str]:
    """The attacks of the conformance suite on a protection: the adaptive ones if there are any."""
    case = PROTECTIONS[name]
    named = [attack for attack, _, _ in case.adaptive] or [attack for attack, *_ in case.lowers]
    return [f"[`{attack}`](attacks.md#{attack})" for attack in dict.fromkeys(named) if attack in ATTACKS]


def part(text: str, word: str) -> str:
    """The paragraph of a docstring that begins with a word and a colon."""
    paragraph = re.search(rf"^{word}: (.*?)(?=\n\n|\Z)", text, re.M | re.S)
    return paragraph[1] if paragraph else ""


def first_sentence(text: str) -> str:
    """The first sentence, without its full stop."""
    return joined(text).partition(". ")[0].rstrip(".")


def linked(text: str) -> str:
    """Text in which `(docs/PAGE.md)` is a link."""
    words = {"results": "results", "how-to": "how"}
    return re.sub(
        r"\(docs/(([\w-]+)[\w/.-]*\.md(?:#[\w-]+)?)\)", lambda to: f"([{words.get(to[2], 'more')}](../{to[1]}))", text
    )


def joined(text: str) -> str:
    """A paragraph on one line."""
    return " ".join(text.split())


def cell(text: str) -> str:
    """Text that cannot end a cell of a table."""
    return text.replace("|", "\\|")


GENERATED: Mapping[str, Callable[[], str]] = {
    "protections": lambda: "\n".join(map(protection_section, sorted(REGISTRY))),
    "attacks": lambda: "\n".join(attack_section(each) for each in entries(Catalogue.ATTACKS) if "plugin" not in each),
    "fits": lambda: "\n".join(map(fit_section, FITS)),
    "models": models,
    "guarantees": guarantees,
    "findings": findings,
    "messages": messages,
    "hooks": hooks,
    "events": events,
}
"""What stands in place of each marker, with links as from a folder of `docs/`."""


if __name__ == "__main__":
    for name in sys.argv[1:]:
        sys.stdout.write(filled(name, (DOCS / name).read_text(encoding="utf-8")))
