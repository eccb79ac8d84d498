"""The client of the app."""

import time

from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from digits.task import accuracy, data, model, train

app = ClientApp()


def begin(message, context):
    net = model()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    return net, data(context.node_config["partition-id"], context.node_config["num-partitions"])


@app.train()
def training(message, context):
    behaviour, partition = context.run_config["behaviour"], context.node_config["partition-id"]
    calls = context.state.setdefault("calls", MetricRecord({"count": 0}))
    calls["count"] += 1
    net, (images, labels) = begin(message, context)
    if partition == 0 and behaviour == "raises":
        raise RuntimeError("no data here")
    if partition == 0 and behaviour == "sleeps":
        time.sleep(100)
    train(net, images, labels, context.run_config["local-steps"], context.run_config["lr"])
    metrics = MetricRecord({"num-examples": len(images), "calls": calls["count"]})
    return Message(RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics}), reply_to=message)


@app.evaluate()
def evaluation(message, context):
    net, (images, labels) = begin(message, context)
    metrics = MetricRecord({"num-examples": len(images), "eval_acc": accuracy(net, images, labels)})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)
