"""Inverse questions to a finished run: with which network, devices, batteries or model is a target still met?"""

from edgefl.rerun.inverse.answers import Answer, Answers, MethodAnswer
from edgefl.rerun.inverse.asking import ask

__all__ = ["Answer", "Answers", "MethodAnswer", "ask"]
