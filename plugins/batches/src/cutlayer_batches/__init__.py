"""A release and a prediction as functions of a batch of rows, for Ray Data, Spark, and any other engine of batches.

`Releaser` and `Predictor` hold paths and the id of a training, nothing else: what an engine sends to its workers has no
weight and no secret in it. `release` counts a distributed release once, whatever number of workers made it.
"""

from cutlayer_batches.functions import BatchFunction, Identifier, Predictor, Releaser, identifier, predictor, releaser
from cutlayer_batches.released import CommittedRelease, OpenRelease, check_release, release

__all__ = [
    "BatchFunction",
    "CommittedRelease",
    "Identifier",
    "OpenRelease",
    "Predictor",
    "Releaser",
    "check_release",
    "identifier",
    "predictor",
    "release",
    "releaser",
]
