"""Session of a party while it runs: its private side, model state, checkpoints, peers."""
