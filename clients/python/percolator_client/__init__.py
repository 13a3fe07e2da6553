"""Client of Percolator over the gateway of its nodes.

It speaks the Connect protocol with the standard library alone, beside protobuf for the messages of
api/gateway/v1/gateway.proto, which `gateway_pb2` has.
"""

from percolator_client.client import Client, Error, Transaction
from percolator_client.gateway.v1 import gateway_pb2

__all__ = ["Client", "Error", "Transaction", "gateway_pb2"]
