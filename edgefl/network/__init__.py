"""Topologies, links, capacities over time, and max-min fair flows."""

from edgefl.network.flow import Flow, FlowObserver, Node
from edgefl.network.flow_network import FlowNetwork
from edgefl.network.topology import GraphLinks, Topology
from edgefl.network.tree import TreeLinks

__all__ = ["Flow", "FlowNetwork", "FlowObserver", "GraphLinks", "Node", "Topology", "TreeLinks"]
