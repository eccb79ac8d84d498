"""Codecs, which encode tensors for sending and decode them at the receiver: one codec per module."""
