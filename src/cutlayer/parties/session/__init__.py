"""What a party holds and notes while it runs: its private side, model state, checkpoints, peers."""
