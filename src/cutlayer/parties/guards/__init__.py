"""What a party checks of what it receives: numbers, and signs of a malicious partner."""
