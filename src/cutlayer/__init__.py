"""Train one model across organisations that may not share data; measure what leaks at the cut layer, and stop it."""

from typing import TYPE_CHECKING

from cutlayer.lazy import on_first_use

if TYPE_CHECKING:
    from cutlayer.config import BudgetConfig as BudgetConfig
    from cutlayer.config import Job as Job
    from cutlayer.config import LabelFreeConfig as LabelFreeConfig
    from cutlayer.errors import CutlayerError as CutlayerError
    from cutlayer.estimator import VerticalClassifier as VerticalClassifier
    from cutlayer.estimator import VerticalRegressor as VerticalRegressor
    from cutlayer.protections.dcor import DCorConfig as DCorConfig
    from cutlayer.protections.dimip import DIMIPConfig as DIMIPConfig
    from cutlayer.protections.discrete_sgd import DiscreteSGDConfig as DiscreteSGDConfig
    from cutlayer.protections.dp_bottom import DPBottomConfig as DPBottomConfig
    from cutlayer.protections.dp_embedding import DPEmbeddingConfig as DPEmbeddingConfig
    from cutlayer.protections.gradient_compression import GradientCompressionConfig as GradientCompressionConfig
    from cutlayer.protections.iso_noise import IsoNoiseConfig as IsoNoiseConfig
    from cutlayer.protections.label_dp import LabelDP as LabelDP
    from cutlayer.protections.label_dp import LabelDPConfig as LabelDPConfig
    from cutlayer.protections.marvell import MarvellConfig as MarvellConfig
    from cutlayer.protections.max_norm import MaxNormConfig as MaxNormConfig
    from cutlayer.protections.noisy_gradient import NoisyGradientConfig as NoisyGradientConfig
    from cutlayer.protections.nopeek import NoPeekConfig as NoPeekConfig
    from cutlayer.protections.party_dropout import PartyDropoutConfig as PartyDropoutConfig
    from cutlayer.protections.ppdl import PPDLConfig as PPDLConfig
    from cutlayer.results.report import Report as Report
    from cutlayer.version import __version__ as __version__
else:
    _MODULES = {
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
        "Report": ".results.report",
        "VerticalClassifier": ".estimator",
        "VerticalRegressor": ".estimator",
        "__version__": ".version",
    }
    __all__ = [*_MODULES]
    __getattr__, __dir__ = on_first_use(__name__, _MODULES)
