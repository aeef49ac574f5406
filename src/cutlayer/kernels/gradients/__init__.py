"""Gradients of rows: computed, bounded, thinned out, and explained."""
