"""Label differential privacy: utility and leak by eps, and what redrawing in every epoch costs."""
