"""Train one model across organisations that may not share data; measure what leaks at the cut layer, and stop it."""

from typing import TYPE_CHECKING

from cutlayer.lazy import on_first_use

if TYPE_CHECKING:
    from cutlayer.config import BudgetConfig, Job, LabelFreeConfig
    from cutlayer.errors import CutlayerError
    from cutlayer.estimator import VerticalClassifier, VerticalRegressor
    from cutlayer.protections import (
        DCorConfig,
        DIMIPConfig,
        DiscreteSGDConfig,
        DPBottomConfig,
        DPEmbeddingConfig,
        GradientCompressionConfig,
        IsoNoiseConfig,
        LabelDP,
        LabelDPConfig,
        MarvellConfig,
        MaxNormConfig,
        NoisyGradientConfig,
        NoPeekConfig,
        PartyDropoutConfig,
        PPDLConfig,
    )
    from cutlayer.report import Report
    from cutlayer.version import __version__
else:
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            "BudgetConfig": ".config",
            "CutlayerError": ".errors",
            "DCorConfig": ".protections",
            "DIMIPConfig": ".protections",
            "DPBottomConfig": ".protections",
            "DPEmbeddingConfig": ".protections",
            "DiscreteSGDConfig": ".protections",
            "GradientCompressionConfig": ".protections",
            "IsoNoiseConfig": ".protections",
            "Job": ".config",
            "LabelDP": ".protections",
            "LabelDPConfig": ".protections",
            "LabelFreeConfig": ".config",
            "MarvellConfig": ".protections",
            "MaxNormConfig": ".protections",
            "NoPeekConfig": ".protections",
            "NoisyGradientConfig": ".protections",
            "PPDLConfig": ".protections",
            "PartyDropoutConfig": ".protections",
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
