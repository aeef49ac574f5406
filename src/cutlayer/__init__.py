"""Train one model across organisations that may not share data; measure what leaks at the cut layer, and stop it."""

from typing import TYPE_CHECKING

from cutlayer.lazy import on_first_use

if TYPE_CHECKING:
    from cutlayer.config import BudgetConfig, Job, LabelFreeConfig
    from cutlayer.errors import CutlayerError
    from cutlayer.estimator import VerticalClassifier, VerticalRegressor
    from cutlayer.protections.dcor import DCorConfig
    from cutlayer.protections.dimip import DIMIPConfig
    from cutlayer.protections.discrete_sgd import DiscreteSGDConfig
    from cutlayer.protections.dp_bottom import DPBottomConfig
    from cutlayer.protections.dp_embedding import DPEmbeddingConfig
    from cutlayer.protections.gradient_compression import GradientCompressionConfig
    from cutlayer.protections.iso_noise import IsoNoiseConfig
    from cutlayer.protections.label_dp import LabelDP, LabelDPConfig
    from cutlayer.protections.marvell import MarvellConfig
    from cutlayer.protections.max_norm import MaxNormConfig
    from cutlayer.protections.noisy_gradient import NoisyGradientConfig
    from cutlayer.protections.nopeek import NoPeekConfig
    from cutlayer.protections.party_dropout import PartyDropoutConfig
    from cutlayer.protections.ppdl import PPDLConfig
    from cutlayer.report import Report
    from cutlayer.version import __version__
else:
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            "BudgetConfig": ".config",
            "CutlayerError": ".errors",
            "DCorConfig": ".protections.dcor",
            "DIMIPConfig": ".protections.dimip",
            "DPBottomConfig": ".protections.dp_bottom",
            "DPEmbeddingConfig": ".protections.dp_embedding",
            "DiscreteSGDConfig": ".protections.discrete_sgd",
            "GradientCompressionConfig": ".protections.gradient_compression",
            "IsoNoiseConfig": ".protections.iso_noise",
            "Job": ".config",
            "LabelDP": ".protections.label_dp",
            "LabelDPConfig": ".protections.label_dp",
            "LabelFreeConfig": ".config",
            "MarvellConfig": ".protections.marvell",
            "MaxNormConfig": ".protections.max_norm",
            "NoPeekConfig": ".protections.nopeek",
            "NoisyGradientConfig": ".protections.noisy_gradient",
            "PPDLConfig": ".protections.ppdl",
            "PartyDropoutConfig": ".protections.party_dropout",
            "Report": ".report",
            "VerticalClassifier": ".estimator",
            "VerticalRegressor": ".estimator",
            "__version__": ".version",
        },
    )

__all__ = [
    "BudgetConfig",
    "CutlayerError",
    "DCorConfig",
    "DIMIPConfig",
    "DPBottomConfig",
    "DPEmbeddingConfig",
    "DiscreteSGDConfig",
    "GradientCompressionConfig",
    "IsoNoiseConfig",
    "Job",
    "LabelDP",
    "LabelDPConfig",
    "LabelFreeConfig",
    "MarvellConfig",
    "MaxNormConfig",
    "NoPeekConfig",
    "NoisyGradientConfig",
    "PPDLConfig",
    "PartyDropoutConfig",
    "Report",
    "VerticalClassifier",
    "VerticalRegressor",
    "__version__",
]
