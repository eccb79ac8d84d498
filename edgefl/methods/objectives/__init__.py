"""Objectives, which clients minimise: one loss per module."""
