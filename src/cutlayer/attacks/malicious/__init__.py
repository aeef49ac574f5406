"""Attacks by parties that send something else than the protocol has them send."""
