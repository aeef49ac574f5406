"""All protections, one line each: a class, and the section that configures it, which `cutlayer` exports."""

# ruff: noqa: F401, I001 (one line for each, of which the registry is made)

from cutlayer.protections.dcor import DCor, DCorConfig as DCorConfig
from cutlayer.protections.dimip import DIMIP, DIMIPConfig as DIMIPConfig
from cutlayer.protections.dp_bottom import DPBottom, DPBottomConfig as DPBottomConfig
from cutlayer.protections.dp_embedding import DPEmbedding, DPEmbeddingConfig as DPEmbeddingConfig
from cutlayer.protections.grade_dp import GradeDP, GradeDPConfig as GradeDPConfig
from cutlayer.protections.iso_noise import IsoNoise, IsoNoiseConfig as IsoNoiseConfig
from cutlayer.protections.label_dp import LabelDP, LabelDPConfig as LabelDPConfig
from cutlayer.protections.marvell import Marvell, MarvellConfig as MarvellConfig
from cutlayer.protections.max_norm import MaxNorm, MaxNormConfig as MaxNormConfig
from cutlayer.protections.nopeek import NoPeek, NoPeekConfig as NoPeekConfig
from cutlayer.protections.party_dropout import PartyDropout, PartyDropoutConfig as PartyDropoutConfig
