#!/usr/bin/env bash
# Everything to do on a machine with a GPU, the most valuable first: agreement with the CPU, the training benchmark,
# and rows of the papers' tables. Call it again to go on: a run that was interrupted is resumed, a finished one is kept.
#
#     tests/gpu/campaign.sh FOLDER [SECONDS]     # at most SECONDS (540) for each part
set -u
FOLDER=$1
mkdir -p "$FOLDER"
limit="timeout --signal INT --kill-after 30 ${2:-540}"

$limit python -m pytest -q -m gpu tests/gpu
for case in pfl-cifar10 resnet18; do
  $limit python tests/benchmarks/training.py --case "$case" --device cuda --precision float32 --json >"$FOLDER/$case.json"
done

row() { # SCENARIO SEED METHOD…
  local scenario=papers/$1 seed=$2 run; shift 2
  for method; do
    run="$FOLDER/${scenario//\//-}-$method-seed$seed"
    if [ -e "$run/summary.json" ]; then continue; fi
    if [ -e "$run" ]; then $limit edgefl simulate --resume "$run"
    else $limit edgefl simulate "$scenario" --method "$method" --seed "$seed" --device cuda --out "$run"; fi
    edgefl report "$run" --against paper
  done
}

row fedadc/table1_cifar10_s2_c10 0 fedavg fedadc fedadc+
row fedadc/fig1_s2 0 slowmo
row fedadc/table1_cifar10_s2_c10 0 feddyn fedprox ntd fedgkd moon fedrs
row fedadc/table1_cifar100_dir5_c10 0 fedavg fedadc fedadc+
row fedbr/fig7_level7 0 fedavg fedmlb fedbr
row fedalign/table3_e10 1 fedavg fedalign
row fedmlb/table1_cifar100_100clients 0 fedavg fedmlb
