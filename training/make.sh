#!/bin/sh
# SPDX-License-Identifier: MIT
# Trains both models and measures them.
#
#     training/make.sh OUT [STEPS [MINUTES]]
#
# Both train at the same time on one GPU, the draft for half of the steps. MINUTES bounds the
# training (default: no bound).
set -e
here=$(dirname "$0")
out=$1 steps=${2:-2800} minutes=${3:-inf}
workers=$(($(nproc) / 2))
export PYTHONUNBUFFERED=1
mkdir -p "$out"
python3 "$here/train.py" gemmule-draft "$out" --steps $((steps / 2)) --minutes "$minutes" \
    --workers "$workers" > "$out/draft.log" 2>&1 &
python3 "$here/train.py" gemmule-mini "$out" --steps "$steps" --minutes "$minutes" \
    --workers "$workers"
wait $!
python3 "$here/evaluate.py" "$out"
