"""Measure how fast a device trains, for ``edgefl profile import``.

Needs Python 3.9 and PyTorch 1.13, or later, and nothing else; runs on boards and phones (Termux) as well. This package
imports nothing of edgefl: ``edgefl profile script`` packs it into one file that Python runs.

It times short chains of layers and whole training steps of four small networks, again and again in turn, and writes the
least time of each to a JSON file. Where memory or time is short it leaves cases out and says so.
"""
