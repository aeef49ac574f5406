"""Protections of a job side by side: the same seeds for each, and paired differences with intervals."""

from cutlayer_sweep.compare.result import Comparison as Comparison
from cutlayer_sweep.compare.run import compare as compare
