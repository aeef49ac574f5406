"""The annex of a privacy card, for people: one HTML page that loads nothing, and the same as Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from cutlayer.report.alignment import TITLE
from cutlayer.report.card.facts import reached_text, value_text
from cutlayer.report.carried import carried_section
from cutlayer.report.markdown import escape_markdown, section_markdown
from cutlayer.report.page import render_page
from cutlayer.report.rounding import bounds, count, date, metric
from cutlayer.report.section import Block, Cell, Column, Items, Paragraph, Section, Table, number, table
from cutlayer.report.sections.columns import columns_table
from cutlayer.report.sections.words import TERMS
from cutlayer.results.metric_names import name_of
from cutlayer.results.privacy_card import PrivacyCard

BLANK_ANSWER = "for the controller"
NOT_SHOWN = "What this does not show"


def annex_sections(card: PrivacyCard) -> list[Section]:
    """The sections of the annex, in the order of the page."""
    return [replace(section, brief=section.blocks) for section in _sections(card)]  # the same in Markdown


def annex_html(card: PrivacyCard) -> str:
    """The page as text; everything that came from a user is escaped."""
    blanks = sum(field.value is None for field in card.fields)
    meta = (
        "Evidence of one training for a data-protection impact assessment. It was computed from the messages that were "
        f"sent. {blanks} fields are blank: only the controller knows them. Run `{card.run}` of {date(card.created)}, "
        f"Cutlayer {card.cutlayer}."
    )
    footer = (
        f"Written by Cutlayer {card.cutlayer}. This page is one file and loads nothing. `privacy_card.json` has the "
        "same, and its schema is printed by `cutlayer schema privacy-card`. The headings follow the named documents in "
        "our words; check against their texts."
    )
    sections = annex_sections(card)
    return render_page(
        card.name, "privacy annex", card.statement, sections, meta=meta, footer=footer, verdict=card.verdict
    )


def annex_markdown(card: PrivacyCard) -> str:
    """The annex as Markdown."""
    title = f"# Privacy annex of {escape_markdown(card.name)}\n"
    run = f"Run {escape_markdown(card.run)}, {escape_markdown(date(card.created))}.\n"
    verdict = [f"{escape_markdown(card.verdict)}\n"] * bool(card.verdict)
    top = [title, f"**{escape_markdown(card.statement)}**\n", *verdict, run]
    return "\n".join([*top, *map(section_markdown, annex_sections(card))])


def _sections(card: PrivacyCard) -> Iterator[Section]:
    yield Section("learns", "Who could learn what", (Items(card.learns),))
    yield Section("not-shown", NOT_SHOWN, (Items(card.not_shown),))
    if card.alignment:
        yield Section("alignment", TITLE, (Items(card.alignment),), nav="Alignment")
    yield Section("attacks", "Every attack, its control and its naive baseline", tuple(_attacks(card)), nav="Attacks")
    if (carried := carried_section(card.carried)) is not None:
        yield carried
    columns = columns_table(card.columns, "privacy_card.json")
    yield Section("columns", "The columns that went in", (columns,), nav="Columns")
    if card.subgroups:
        yield Section("subgroups", "Utility by subgroup", (_subgroups(card),), nav="Subgroups")
    for index, (framework, tables) in enumerate(framework_tables(card).items()):
        yield Section(f"framework-{index}", framework, tables)
    yield Section("registry", "Differential Privacy Deployments Registry", (_registry(card),), nav="Registry")
    yield Section("terms", "Terms", (Items(TERMS),))


def _attacks(card: PrivacyCard) -> Iterator[Block]:
    if not card.evidence:
        yield Paragraph("No attack was run.")
    for threat in dict.fromkeys(result.threat for result in card.evidence):
        results = [result for result in card.evidence if result.threat == threat]
        notes = dict.fromkeys(f"Control: {result.control_is}. Naive: {result.naive_is}." for result in results)
        yield table(
            f"{threat.capitalize()}. {' '.join(notes) if len(notes) == 1 else ''}".strip(),
            results,
            ("Attacker and secret", lambda result: Cell(f"{result.attacker} on {result.owner}", (result.subject,))),
            (Column("Attack", "text"), lambda result: Cell(result.attack, result.knowledge)),
            (number("Reached"), lambda result: Cell(reached_text(result), bounds(result.low, result.high))),
            (number("Control"), lambda result: value_text(result, result.control)),
            (number("Naive"), lambda result: value_text(result, result.naive)),
            (
                number("Undefended"),
                lambda result: value_text(result, result.undefended) if card.protected else "this run",
            ),
            (number("Attacked rows"), lambda result: "" if result.rows is None else count(result.rows)),
            highlight=lambda result: result.strongest,
            layout="stack",
        )
        if len(notes) > 1:
            yield Items(tuple(notes))
    if card.evidence:
        by_attack = {result.attack: result for result in card.evidence}
        knowing = {attack: [each.knowledge for each in card.evidence if each.attack == attack] for attack in by_attack}
        known = {attack: dict.fromkeys(text for texts in every for text in texts) for attack, every in knowing.items()}
        yield table(
            "What each attack does",
            list(by_attack.values()),
            ("Attack", lambda result: result.attack),
            (Column("What it does", "statement"), lambda result: result.attack_does or "not known to this version"),
            (
                Column("What the attacker knows", "text"),
                lambda result: "; ".join(known[result.attack]) or "only messages",
            ),
            layout="stack",
        )


def _subgroups(card: PrivacyCard) -> Table:
    names = list(dict.fromkeys(name for group in card.subgroups for name in group.metrics))
    return table(
        "Held-out metrics by value of a column; none of fewer than 20 rows, and none that would give those away",
        card.subgroups,
        ("Group", lambda group: Cell(f"{group.column}: {group.group}", (f"column of {group.party}",))),
        (number("Rows"), lambda group: "not shown" if group.rows is None else count(group.rows)),
        *(
            (
                number(name_of(name)),
                lambda group, name=name: metric(group.metrics.get(name)) if group.metrics else "not shown",
            )
            for name in names
        ),
        layout="stack",
    )


def framework_tables(card: PrivacyCard) -> dict[str, tuple[Table, ...]]:
    """The fields of each framework as tables, by its name."""
    names = dict.fromkeys(field.framework for field in card.fields)
    return {framework: tuple(_fields(card, framework)) for framework in names}


def _fields(card: PrivacyCard, framework: str) -> Iterator[Table]:
    fields = [field for field in card.fields if field.framework == framework]
    for group in dict.fromkeys(field.group for field in fields):
        yield table(
            group,
            [field for field in fields if field.group == group],
            (Column("Field", "text"), lambda field: field.name),
            (Column("Answer", "statement"), lambda field: _answer(field.value)),
            ("Source", lambda field: Cell(field.origin, tone="bad" if field.value is None else "muted")),
            layout="stack",
        )


def _answer(value: str | None) -> Cell:
    return Cell(f"[ {BLANK_ANSWER} ]", tone="blank") if value is None else Cell(value)


def _registry(card: PrivacyCard) -> Table:
    entries = [(tier, name, value) for tier, fields in card.registry.items() for name, value in fields.items()]
    return table(
        "An entry by the registry's three tiers; the same is in privacy_card.json",
        entries,
        ("Tier", lambda entry: entry[0].removeprefix("tier_")),
        (Column("Field", "text"), lambda entry: entry[1].replace("_", " ")),
        (Column("Answer", "statement"), lambda entry: _answer(entry[2])),
        layout="stack",
    )
