"""Data sets, partitions over clients, and the batches of a training job."""
