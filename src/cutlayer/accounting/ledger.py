"""The formal privacy cost of a run, by party, asset and receiver."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Annotated, Any

from pydantic import PlainSerializer, PlainValidator, TypeAdapter, ValidationError, WithJsonSchema, computed_field
from pydantic.dataclasses import dataclass

from cutlayer.accounting import wording
from cutlayer.accounting.composition import DELTA, Composition
from cutlayer.accounting.events import (
    DPSGD,
    AboutLabels,
    Event,
    Formal,
    GaussianRelease,
    NoFormalGuarantee,
    RandomizedGrade,
    RandomizedResponse,
    known_events,
)
from cutlayer.accounting.plan import Condition, condition_of
from cutlayer.accounting.records import event_from_json, event_to_json
from cutlayer.accounting.total import Asset, Total
from cutlayer.errors import ConfigError

Recorded = Annotated[
    Event,
    PlainValidator(lambda event: event if isinstance(event, Event) else event_from_json(event)),
    PlainSerializer(event_to_json),
    WithJsonSchema({"type": "object", "required": ["kind"]}),
]
"""An event, in JSON its fields with `kind`."""
REFUSAL_ENTRY = "refusal"
"""Name of the entry for what it reveals whether grades are sent or refused, and at which epsilon."""


@dataclass(frozen=True)
class Entry:
    """One protection's event, with its owner and direction.

    Attributes:
        protection: Name of the protection.
        party: Owner of the protection.
        protects: Protected asset.
        towards: Parties that receive the release.
        event: Record of the release.
        delta: Delta of the stated epsilon.
        fingerprint: Digest of the inputs of a randomised response's draws. Entries with the same fingerprint are the
            same draws, which cost once, however many runs use them; `None` if every run draws anew.
        run: Number of the run, from 0; above 0 only in a merged ledger.
        stated_by: The plugin whose protection states the event; empty for Cutlayer's own.
    """

    protection: str
    party: str
    protects: Asset
    towards: tuple[str, ...]
    event: Recorded
    delta: float = DELTA
    fingerprint: str | None = None
    run: int = 0
    stated_by: str = ""

    @property
    def formal(self) -> bool:
        """Whether a theorem bounds the release."""
        return isinstance(self.event, Formal)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def epsilon(self) -> float | None:
        """Cost of the whole run at `delta`, or `None` where no theorem holds; pure for draws of labels."""
        return Composition.of([self.event]).epsilon(self.delta) if self.formal else None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def statement(self) -> str:
        """The guarantee, or the reason why there is none."""
        text = wording.event_text(self.event)
        if self.epsilon is None:
            return text
        about = f"{wording.asset_text(self.protects, self.party)}, towards {', '.join(self.towards)}: {text}"
        return f"{about}; {wording.plugin_text(self.stated_by)}" if self.stated_by else about


@dataclass(frozen=True)
class Ledger:
    """All entries of a run, or of several.

    Attributes:
        entries: Releases of each protection.
    """

    entries: tuple[Entry, ...]

    @computed_field  # type: ignore[prop-decorator]
    @cached_property
    def totals(self) -> tuple[Total, ...]:
        """A total for each party, asset and receiver; receivers of the same releases share it.

        Raises:
            ConfigError: An event that the ledger does not know.
        """
        return tuple(_total(towards, entries) for towards, entries in self._groups())

    def merged(self, other: Ledger) -> Ledger:
        """The account of two runs on the same rows: shared draws cost once, all other costs add up.

        Releases count as being of the same rows wherever party and asset are the same, which is right or too much. What
        one of the runs protects and another does not is covered by nothing: that run released it as it is.
        """
        first = 1 + max((entry.run for entry in self.entries), default=0)
        runs = first + 1 + max((entry.run for entry in other.entries), default=0)
        entries = [*self.entries, *(replace(entry, run=first + entry.run) for entry in other.entries)]
        return Ledger((*entries, *_unprotected(entries, runs)))

    def to_json(self) -> dict[str, Any]:
        """Plain values for `ledger.json`."""
        plain: dict[str, Any] = _LEDGER.dump_python(self, mode="json")
        return plain

    @classmethod
    def from_json(cls, raw: Any) -> Ledger:
        """Read the values that `to_json` wrote; totals are computed again.

        Raises:
            ConfigError: It is no ledger, or holds an event that is not known here.
        """
        try:
            return _LEDGER.validate_python(raw)
        except ValidationError as fault:
            first = fault.errors()[0]
            got = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
            raise ConfigError.expected("a ledger as a run writes it", got, "run the job again") from None

    def _groups(self) -> Iterator[tuple[tuple[str, ...], list[Entry]]]:
        """Receivers with what they receive, by party and asset."""
        groups: dict[tuple[str, str, tuple[int, ...]], list[str]] = {}
        for party, asset in dict.fromkeys((entry.party, entry.protects) for entry in self.entries):
            entries_by_index = {
                index: entry
                for index, entry in enumerate(self.entries)
                if (entry.party, entry.protects) == (party, asset)
            }
            for receiver in dict.fromkeys(name for entry in entries_by_index.values() for name in entry.towards):
                indices = tuple(index for index, entry in entries_by_index.items() if receiver in entry.towards)
                groups.setdefault((party, asset, indices), []).append(receiver)
        for (_, _, indices), receivers in groups.items():
            yield tuple(receivers), [self.entries[index] for index in indices]


def _unprotected(entries: Sequence[Entry], runs: int) -> Iterator[Entry]:
    """Entries for the runs that do not protect an asset which another run protects."""
    for party, asset in dict.fromkeys((entry.party, entry.protects) for entry in entries):
        asset_entries = [entry for entry in entries if (entry.party, entry.protects) == (party, asset)]
        receivers = dict.fromkeys(name for entry in asset_entries for name in entry.towards)
        for run in range(runs):
            covered = {name for entry in asset_entries if entry.run == run for name in entry.towards}
            uncovered = tuple(name for name in receivers if name not in covered)
            if uncovered:
                event = NoFormalGuarantee(f"nothing protects the {asset} in one of the runs")
                yield Entry("none", party, asset, uncovered, event, run=run)


def _total(towards: tuple[str, ...], entries: Sequence[Entry]) -> Total:
    once: dict[str, Entry] = {}
    for index, entry in enumerate(entries):
        key = entry.fingerprint or str(index)
        # Of the same draws, the run that counts more of other runs that did not end states them all.
        if key not in once or _draws(entry) > _draws(once[key]):
            once[key] = entry
    events = known_events(entry.event for entry in once.values())
    party, asset = entries[0].party, entries[0].protects
    delta = min((entry.delta for entry in entries if entry.formal), default=entries[0].delta)
    runs = [
        [entry.event for entry in entries if entry.run == run] for run in dict.fromkeys(entry.run for entry in entries)
    ]
    # A theorem about one run says nothing of what another released as it is.
    why = next((why for run in runs if (why := _uncovered(asset, run))), "")
    if why:
        return _with_statement(Total(party=party, protects=asset, towards=towards, delta=delta, why=why))
    cost = Composition.of(events)
    # The tails of many private fits exceed the delta of each: epsilon is then stated at one of all together.
    delta = max(delta, cost.approximation.least_delta)
    noisy = [event for event in events if isinstance(event, GaussianRelease)]
    plugins = ", ".join(dict.fromkeys(entry.stated_by for entry in entries if entry.formal and entry.stated_by))
    condition = _label_conditions(entries) or _condition(runs)
    if plugins:
        condition = f"{condition}, {wording.plugin_text(plugins)}".removeprefix("unconditional, ")
    total = Total(
        party=party,
        protects=asset,
        towards=towards,
        epsilon=cost.epsilon(delta),
        delta=0.0 if cost.accountant == "pure" else delta,
        accountant=cost.accountant,
        rdp_epsilon=None if cost.accountant == "pure" else cost.rdp_epsilon(delta),
        condition=condition,
        stated_by=plugins,
        curve=cost.curve(),
        auc_bound=cost.auc_bound,
        releases=sum(event.releases.max_releases for event in noisy) if noisy else None,
    )
    # A theorem with conditions is of given models, which limits are of, too.
    refusals = [entry.event for entry in entries if entry.protection == REFUSAL_ENTRY and condition == "unconditional"]
    return _with_statement(total, [event.why for event in refusals if isinstance(event, NoFormalGuarantee)])


def _with_statement(total: Total, outside: Sequence[str] = ()) -> Total:
    """With its statement, which ends with what no epsilon of it covers."""
    texts = [wording.total_text(total), *(f"outside of it, {text}" for text in dict.fromkeys(outside))]
    return total.model_copy(update={"statement": "; ".join(texts)})


def _draws(entry: Entry) -> int:
    """Number of independent draws of labels or grades in an entry."""
    return entry.event.draws if isinstance(entry.event, RandomizedResponse | RandomizedGrade) else 0


def _uncovered(asset: Asset, events: Sequence[Event]) -> str:
    """Reason why no theorem covers the releases of a run, or empty."""
    reasons = [event for event in events if isinstance(event, NoFormalGuarantee)]
    if any(isinstance(event, Formal) and not isinstance(event, DPSGD) for event in events):
        return "; ".join(dict.fromkeys(event.why for event in reasons if event.voids))
    if any(isinstance(event, DPSGD) for event in events):
        return "the bottom model is trained privately, but the embeddings are released without noise"
    return "; ".join(dict.fromkeys(event.why for event in reasons)) or f"nothing protects the {asset}"


def _label_conditions(entries: Sequence[Entry]) -> str:
    """Conditions of the guarantees of labels, of all runs; empty without conditions."""
    events = [entry.event for entry in entries if isinstance(entry.event, AboutLabels)]
    return wording.conditions_text(dict.fromkeys(condition for event in events for condition in event.given))


def _condition(runs: Sequence[Sequence[Event]]) -> Condition:
    """The condition of the releases. Private training lifts the condition on the bottom model of its own run alone."""
    bottom, encoding = False, False
    for events in runs:
        stated = [event.condition for event in events if isinstance(event, GaussianRelease | RandomizedGrade)]
        trained = any(isinstance(event, DPSGD) for event in events)
        bottom |= not trained and any("bottom model" in condition for condition in stated)
        encoding |= any("encoding" in condition for condition in stated)
    return condition_of(bottom=bottom, encoding=encoding)


_LEDGER = TypeAdapter(Ledger)
