"""Flower apps in virtual time: an app's ``ServerApp`` and ``ClientApp`` run on a scenario's devices and links.

Only :mod:`edgefl.flower.scenario` and :mod:`edgefl.flower.verification` are needed without the package ``flwr``.
"""
