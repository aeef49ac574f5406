"""Random faults of a network and of processes: every run ends with the right numbers or a named error.

`python -m tools.faults --trials 1000` draws that many schedules of faults between two parties. A trial repeats by its
seed: `--seed N --trials 1`. `--kills 50` kills two organisations that often each, and compares what their runs
leave with a quiet run. `--frames 1000000` decodes that many changed frames.
"""
