"""Predictions of a trained model: releases of passive parties for them, in files and online between organisations."""

from cutlayer.serving.release import Embed, Prediction, Serving, servings

__all__ = ["Embed", "Prediction", "Serving", "servings"]
