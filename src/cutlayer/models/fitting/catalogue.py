"""All fits of a bottom model, one line each."""

# ruff: noqa: F401, I001 (one line for each, of which the registry is made)

from cutlayer.models.fitting.none import NONE
from cutlayer.models.fitting.pca import PCA
from cutlayer.models.fitting.sketch import SKETCH
from cutlayer.models.fitting.autoencoder import AUTOENCODER
from cutlayer.models.fitting.contrastive import CONTRASTIVE
from cutlayer.models.fitting.gradients import GRADIENTS
