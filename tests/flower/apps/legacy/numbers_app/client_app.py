"""The client of the app: it adds its number to the model."""

import numpy as np
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp


class Adder(NumPyClient):
    def __init__(self, number, raises):
        self.number, self.raises = number, raises

    def get_parameters(self, config):
        return [np.zeros(1000)]

    def fit(self, parameters, config):
        if self.raises:
            raise ValueError("cannot add")
        return [parameters[0] + self.number], 10, {}

    def evaluate(self, parameters, config):
        return float(parameters[0][0]), 10, {"accuracy": float(parameters[0][0]) / 100}


def client_fn(context):
    partition = int(context.node_config["partition-id"])
    return Adder(partition, bool(context.run_config["raises"]) and partition == 1).to_client()


app = ClientApp(client_fn=client_fn)
