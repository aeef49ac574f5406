"""The parts of the protocol, one a file: `lead` is the active party's side, and `follow` that of a passive party."""
