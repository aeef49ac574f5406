"""Protections of a job side by side: the same seeds for each, and paired differences with intervals."""

from cutlayer.sweeps.compare.result import Comparison as Comparison
from cutlayer.sweeps.compare.run import compare as compare
