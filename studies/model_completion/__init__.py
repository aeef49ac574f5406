"""Model completion by a departed party, with DIMIP and the gradient defences."""
