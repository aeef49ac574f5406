"""What malicious parties gain over curious ones, and what the guards see of it."""
