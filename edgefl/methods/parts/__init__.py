"""Parts that several methods share: losses, the local step, server updates, payloads and parts of a model."""
