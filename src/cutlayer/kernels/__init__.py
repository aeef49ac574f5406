"""Pure tensor maths: no parties, no I/O, no state."""
