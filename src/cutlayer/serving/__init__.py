"""Predictions of a trained model: releases of passive parties for them, in files and online between organisations."""

from cutlayer.serving.prediction_release import Serving, servings

__all__ = ["Serving", "servings"]
