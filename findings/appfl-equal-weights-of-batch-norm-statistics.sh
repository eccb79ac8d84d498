#!/usr/bin/env bash
# appfl 1.12.0: with client_weights_mode: sample_size, FedAvgAggregator weights parameters by the clients' samples, but
# batch norm's running statistics equally: of clients with 1 and 9 samples whose scales and running means are 0 and 1,
# the scale becomes 0.9 and the running mean 0.5.
# Prints both. Exit code 1: this has changed.
set -eu
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet appfl==1.12.0 torch==2.14.1
"$folder/venv/bin/python" - <<'PYTHON'
import sys

import torch
from appfl.algorithm.aggregator import FedAvgAggregator
from omegaconf import DictConfig


def norm(value):
    layer = torch.nn.BatchNorm1d(1)
    with torch.no_grad():
        layer.weight.fill_(value)
        layer.running_mean.fill_(value)
    return layer


aggregator = FedAvgAggregator(norm(0.5), DictConfig({"client_weights_mode": "sample_size"}))
for client, samples in enumerate((1, 9)):
    aggregator.set_client_sample_size(client, samples)
found = aggregator.aggregate({client: norm(float(client)).state_dict() for client in (0, 1)})
scale, mean = round(float(found["weight"]), 6), round(float(found["running_mean"]), 6)
print(f"scale {scale}, running mean {mean}")
sys.exit((scale, mean) != (0.9, 0.5))
PYTHON
