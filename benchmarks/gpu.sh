#!/usr/bin/env bash
# All figures of docs/results/gpu.md on one GPU, in less than ten minutes: a JSON line for each part.
# Usage, from the root of the repository, in an environment with Cutlayer and a PyTorch with CUDA:
#     bash benchmarks/gpu.sh > gpu.jsonl
# The first argument of a part is its limit in seconds: then it is stopped, and the next one begins. Repeat it alone
# without a limit by `python -m benchmarks.gpu_training PART`.
set -uo pipefail
measure() {
    timeout "$1" python -m benchmarks.gpu_training "${@:2}" || echo "{\"name\": \"$2\", \"skipped\": \"exit $?\"}"
}
measure 130 rates_8192 --rows 1000000 --seconds 30
measure 130 rates_65536 --rows 1000000 --seconds 30
measure 40 dcor --repeats 20 --seconds 10
measure 90 images --rows 8000 --repeats 3 --seconds 30
measure 60 protections_noise --rows 200000 --repeats 3 --seconds 20
measure 60 protections_gradients --rows 200000 --repeats 3 --seconds 20
measure 85 protections_embeddings --rows 200000 --repeats 3 --seconds 20
