"""All kinds of bottom and top models, one line for each file."""

# ruff: noqa: F401, I001 (one line for each, of which the registry is made)

from cutlayer.models.auto import AUTO_BOTTOM
from cutlayer.models.mlp import MLP_BOTTOM, MLP_TOP
from cutlayer.models.wide_deep import WIDE_DEEP_BOTTOM, WIDE_DEEP_TOP
from cutlayer.models.linear import LINEAR_BOTTOM
from cutlayer.models.tabular import TABULAR
from cutlayer.models.columns import COLUMNS_BOTTOM
from cutlayer.models.grade import GRADE_BOTTOM
from cutlayer.models.cnn import CNN
from cutlayer.models.lenet5 import LENET5
from cutlayer.models.resnet18 import RESNET18
from cutlayer.models.multi_head import MULTI_HEAD
from cutlayer.models.indicator import INDICATOR
from cutlayer.models.laser import LASER
from cutlayer.models.top_estimators.sections import AUTO_TOP, LINEAR_TOP, BOOSTING, SKLEARN
from cutlayer.models.user import PYTHON_BOTTOM, PYTHON_TOP
