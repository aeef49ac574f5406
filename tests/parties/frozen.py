"""Prepares a process that others are forked from; imported after all that they use."""

from tests.prepared import prepare

prepare()
