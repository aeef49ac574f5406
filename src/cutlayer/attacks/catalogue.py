"""All attacks, one line each, in the order in which an audit runs those of a family."""

# ruff: noqa: F401, I001 (one line for each, of which the registry is made)

from cutlayer.attacks.label.norm import Norm
from cutlayer.attacks.label.direction import Direction
from cutlayer.attacks.label.hint import Hint
from cutlayer.attacks.label.spectral import Spectral
from cutlayer.attacks.label.direct import Direct
from cutlayer.attacks.label.gradient_match import GradientMatch
from cutlayer.attacks.label.probe import Probe
from cutlayer.attacks.label.directions import Directions
from cutlayer.attacks.label.joint_spectral import JointSpectral
from cutlayer.attacks.label.mixture import Mixture
from cutlayer.attacks.label.off_norm import OffNorm
from cutlayer.attacks.label.mean_length import MeanLength
from cutlayer.attacks.label.message_size import MessageSize
from cutlayer.attacks.label.sign_changes import SignChanges
from cutlayer.attacks.label.bilinear import Bilinear
from cutlayer.attacks.label.aligned_match import AlignedMatch
from cutlayer.attacks.label.exploit import Exploit
from cutlayer.attacks.label.feature_prior import FeaturePrior
from cutlayer.attacks.label.co_training import CoTraining
from cutlayer.attacks.label.drawn_labels import DrawnLabels
from cutlayer.attacks.label.few_labels import FewLabels
from cutlayer.attacks.label.mean_gradient import MeanGradient
from cutlayer.attacks.label.self_training import SelfTraining
from cutlayer.attacks.label.strong_probe import StrongProbe
from cutlayer.attacks.label.similarity import Similarity
from cutlayer.attacks.label.regression_labels import RegressionLabels
from cutlayer.attacks.label.split_part import SplitPart
from cutlayer.attacks.label.split_part import SplitPartOfClasses
from cutlayer.attacks.label.sent_labels import SentLabelsAttack
from cutlayer.attacks.completion.passive import ModelCompletion
from cutlayer.attacks.completion.active import ActiveModelCompletion
from cutlayer.attacks.feature.inversion import Inversion
from cutlayer.attacks.feature.exact import Exact
from cutlayer.attacks.feature.membership import Membership
from cutlayer.attacks.feature.attribute import Attribute
from cutlayer.attacks.feature.best_guess import BestGuess
from cutlayer.attacks.feature.lattice import Lattice
from cutlayer.attacks.feature.two_valued import TwoValued
from cutlayer.attacks.feature.components import Components
from cutlayer.attacks.feature.naming import Naming
