"""An observer that forwards to another one."""

import inspect
from unittest import mock

import pytest

from cutlayer.parties.session.observer import Observer, Relay

CALLS = [name for name, _ in inspect.getmembers(Observer, inspect.isfunction)]


@pytest.mark.parametrize("name", CALLS)
def test_every_call_is_forwarded(name):
    inner = mock.create_autospec(Observer, instance=True)
    arguments = [object() for _ in list(inspect.signature(getattr(Observer, name)).parameters)[1:]]
    forwarded = getattr(inner, name)
    getattr(Relay(inner), name)(*arguments)
    forwarded.assert_called_once_with(*arguments)
    assert len(inner.method_calls) == 1


def test_leaks_are_those_of_the_other_observer():
    inner = mock.create_autospec(Observer, instance=True)
    assert Relay(inner).leaks(0, []) is inner.leaks.return_value
