"""Messages changed on their way, for tests that a wrong one is caught."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from cutlayer.channel import Kind, Message
from tests.parties.runs import Transmit, wrap_links

Change = Callable[[Message], list[Message]]


def tamper(monkeypatch: pytest.MonkeyPatch, kind: Kind, change: Change, nth: int = 0) -> None:
    """Replace the nth message of a kind, in runs in this process, by what `change` makes of it."""
    left = [nth]

    def changed(transmit: Transmit) -> Transmit:
        def pass_on(message: Message) -> None:
            left[0] -= message.kind == kind
            hit = message.kind == kind and left[0] == -1
            for each in change(message) if hit else [message]:
                transmit(each)

        return pass_on

    wrap_links(monkeypatch, changed)


def with_stamp(**stamp: Any) -> Change:
    """The message with other stamps."""
    return lambda message: [replace(message, **stamp)]


def with_fields(**fields: Any) -> Change:
    """The message with some fields changed."""
    return lambda message: [replace(message, fields={**message.fields, **fields})]


def with_tensors(change: Callable[[Any], Any]) -> Change:
    """The message with its tensors changed."""
    return lambda message: [replace(message, tensors={name: change(t) for name, t in message.tensors.items()})]


def lost(message: Message) -> list[Message]:
    """The message never arrives."""
    return []


def doubled(message: Message) -> list[Message]:
    """The message arrives twice."""
    return [message, message]
