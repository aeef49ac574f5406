"""Fixtures of the protocol's tests."""

from tests.parties.recorded import recorded

__all__ = ["recorded"]
