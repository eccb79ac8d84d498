"""Data sets, partitions over clients, and the batches of a training job.

:func:`edgefl.data.spec.data_set` reads a scenario's ``data`` section; :func:`edgefl.data.federated.load_federated`
returns all data for training.
"""
