"""Hides what is imported before it from the garbage collector, in a process that others are forked from.

A full collection of a forked process would else copy the pages of all objects that it looks at, which takes half a
second of its time.
"""

from __future__ import annotations

import gc

from cutlayer.cli.app import _command

_command()  # reads the signatures of all verbs
gc.collect()
gc.freeze()
