"""The server of the app."""

from flwr.app import ArrayRecord, MetricRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

from digits.task import accuracy, data, model

app = ServerApp()


def evaluated(server_round, arrays):
    net = model()
    net.load_state_dict(arrays.to_torch_state_dict())
    return MetricRecord({"accuracy": accuracy(net, *data(None, 0))})


@app.main()
def main(grid, context):
    config = context.run_config
    strategy = FedAvg(fraction_evaluate=config["fraction-evaluate"])
    strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(model().state_dict()),
        num_rounds=config["num-server-rounds"],
        timeout=config["timeout"],
        evaluate_fn=evaluated if config["fraction-evaluate"] == 0 else None,
    )
