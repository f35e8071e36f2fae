#!/bin/bash
# A first run on a GPU: a look at the basics, then all GPU benchmarks and tests.
#     LIMIT=560 OUT=folder bash scripts/gpu_first_run.sh
# LIMIT: seconds for all of it. OUT: where env.txt, smoke.txt, tests.txt and the figures go.
# Needs no napari and no Qt. HUSHPORE_COMMIT: the commit, where the copy has no history.
set -u
cd "$(dirname "$0")/.." || exit
OUT=${OUT:-/tmp/hushpore_gpu}
LIMIT=${LIMIT:-560}
mkdir -p "$OUT"
export PYTHONPATH=$PWD/src PYTHONUNBUFFERED=1 PYTHONFAULTHANDLER=1
# what somebody prefers on this machine, and speeds measured before, are left alone
HUSHPORE_CONFIG=$(mktemp -d)
export HUSHPORE_CONFIG

{
    nvidia-smi
    python3 -VV
    nproc
    free -g
    df -h /tmp
    python3 -m pip list 2>&1 |
        grep -iE '^(torch|cu|num|scipy|scikit-im|pandas|tiff|psu|nvidia|pytest)'
} >"$OUT/env.txt" 2>&1

timeout -k 5 130 python3 scripts/gpu_smoke.py "${DEVICE:-cuda}" >"$OUT/smoke.txt" 2>&1
cat "$OUT/smoke.txt"

left=$((LIMIT - SECONDS))
timeout -k 5 "$left" python3 -m benchmarks gpu --out "$OUT" --limit $((left - 8)) 2>&1 |
    tee "$OUT/bench.txt"
