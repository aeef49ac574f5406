"""All fits of a bottom model, one line each."""

# ruff: noqa: F401, I001 (one line for each, of which the registry is made)

from cutlayer.models.bottom_fits.none import NONE
from cutlayer.models.bottom_fits.pca import PCA
from cutlayer.models.bottom_fits.sketch import SKETCH
from cutlayer.models.bottom_fits.gradients import GRADIENTS
from cutlayer.models.bottom_fits.grade import GRADE
from cutlayer.models.bottom_fits.cells import CELLS
