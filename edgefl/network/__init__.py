"""Topologies, links, capacities over time, and max-min fair flows."""

from edgefl.network.capacities.base import Capacities, CapacitySpec
from edgefl.network.client_links import ClientLinks
from edgefl.network.flow import Flow
from edgefl.network.flow_network import FlowNetwork
from edgefl.network.specs import LinkSpec, NetworkSpec
from edgefl.network.tcp import Tcp
from edgefl.network.topology import GraphLinks
from edgefl.network.traces import TraceColumns, read_mahimahi, read_traces
from edgefl.network.transport import FifoQueue, Transport, lv08
from edgefl.network.tree import TreeLinks, build_topology
from edgefl.step_trace import StepTrace

__all__ = [
    "Capacities", "CapacitySpec", "ClientLinks", "FifoQueue", "Flow", "FlowNetwork", "GraphLinks", "LinkSpec",
    "NetworkSpec", "StepTrace", "Tcp", "TraceColumns", "Transport", "TreeLinks", "build_topology", "lv08",
    "read_mahimahi", "read_traces",
]  # fmt: skip
