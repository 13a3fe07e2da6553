"""Client of Percolator over the gateway of its nodes.

It speaks the Connect protocol with the standard library alone, beside protobuf for the messages of
api/gateway/v1/gateway.proto, which `gateway_pb2` has.
"""

from percolator_client.client import Client, Error, Transaction
from percolator_client.gateway.v1 import gateway_pb2
from percolator_client.work import (
    Change,
    NotReady,
    Observer,
    PartialFailure,
    RetryAfter,
    Worker,
    batch_observer,
    observer,
)

__all__ = [
    "Change",
    "Client",
    "Error",
    "NotReady",
    "Observer",
    "PartialFailure",
    "RetryAfter",
    "Transaction",
    "Worker",
    "batch_observer",
    "gateway_pb2",
    "observer",
]
