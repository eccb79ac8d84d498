"""The server of the app."""

from flwr.server import ServerApp, ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg


def weighted(results):
    total = sum(examples for examples, _ in results)
    return {"accuracy": sum(examples * metrics["accuracy"] for examples, metrics in results) / total}


def server_fn(context):
    config = ServerConfig(num_rounds=int(context.run_config["num-server-rounds"]))
    return ServerAppComponents(strategy=FedAvg(evaluate_metrics_aggregation_fn=weighted), config=config)


app = ServerApp(server_fn=server_fn)
