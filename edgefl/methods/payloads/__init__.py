"""Payloads, the content of a method's downlink and uplink: one payload per module."""
