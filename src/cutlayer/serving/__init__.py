"""Predictions of a trained model: releases of passive parties for them, in files and online between organisations."""

from cutlayer.serving.prediction_release import PredictionReleases, prediction_releases

__all__ = ["PredictionReleases", "prediction_releases"]
