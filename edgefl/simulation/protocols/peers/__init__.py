"""Rounds without a server: peers average with their neighbours, or all of them around a ring."""

from edgefl.simulation.protocols.peers.gossip import Gossip, GossipSpec
from edgefl.simulation.protocols.peers.ring_all_reduce import RingAllReduce, RingAllReduceSpec

__all__ = ["Gossip", "GossipSpec", "RingAllReduce", "RingAllReduceSpec"]
