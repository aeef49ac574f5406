"""Label leakage from gradients, with sumKL-minimising noise and max norm alignment."""
