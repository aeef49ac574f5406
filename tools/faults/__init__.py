"""Random faults of a network between two parties: every run ends with the right numbers or a named error.

`python -m tools.faults --trials 1000` draws that many schedules. A trial repeats by its seed: `--seed N --trials 1`.
"""
