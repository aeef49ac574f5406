#!/usr/bin/env bash
# All figures of docs/how-to/devices.md on one GPU, in less than ten minutes: a JSON line for each part.
# Usage, from the root of the repository, in an environment with Cutlayer and a PyTorch with CUDA:
#     bash benchmarks/gpu.sh > gpu.jsonl
# A part that takes more than three minutes is stopped, and the next one begins.
set -uo pipefail
measure() { timeout 180 python -m benchmarks.gpu_training "$@" || echo "{\"name\": \"$1\", \"skipped\": \"exit $?\"}"; }
measure rates_8192 --rows 1000000 --seconds 30
measure rates_65536 --rows 1000000 --seconds 30
measure dcor --repeats 20 --seconds 10
measure images --rows 8000 --repeats 3 --seconds 40
measure protections_noise --rows 200000 --repeats 3 --seconds 30
measure protections_gradients --rows 200000 --repeats 3 --seconds 30
measure protections_embeddings --rows 200000 --repeats 3 --seconds 30
