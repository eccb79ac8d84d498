#!/usr/bin/env bash
# fedlab 1.3.0: SerializationTool.serialize_model, with which clients and server exchange models, leaves out buffers. A
# server that averages serialised models keeps batch norm's running mean 0 and variance 1 for ever, and evaluates with
# them, although each client has others.
# Prints the running mean of a client, and that of a model that has received the client's. Exit code 1: this has changed.
set -eu
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet fedlab==1.3.0 torch==2.14.1
"$folder/venv/bin/python" - <<'PYTHON'
import sys

import torch
from fedlab.utils.serialization import SerializationTool

torch.manual_seed(0)
client, server = torch.nn.BatchNorm1d(1), torch.nn.BatchNorm1d(1)
for _ in range(100):
    client(torch.randn(64, 1) + 3.0)
SerializationTool.deserialize_model(server, SerializationTool.serialize_model(client))
own, received = float(client.running_mean), float(server.running_mean)
print(f"client {own:.3f}, server {received:.3f}")
sys.exit(not (abs(own - 3.0) < 0.1 and received == 0.0))
PYTHON
