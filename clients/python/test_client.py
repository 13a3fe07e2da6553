"""Tests against a real node: PERCOLATOR=../../bin/percolator /usr/bin/python3 -m unittest"""

import re
import unittest

from cluster import Cluster
from percolator_client import Client, Error, gateway_pb2 as pb


class ClientTest(unittest.TestCase):
    def setUp(self):
        self.cluster = Cluster(1)
        self.addCleanup(self.cluster.stop)
        self.db = self.cluster.client()
        self.addCleanup(self.db.close)
        request = pb.CreateTableRequest(table=pb.TableSpec(name="t", split_keys=["m"]))
        self.db.repeat("Control/CreateTable", request, pb.CreateTableResponse, 60)

    def increment(self, tx):
        count = int(tx.get("t", "a", "n") or b"0") + 1
        tx.set("t", "a", "n", str(count))
        tx.set("t", "z", "n", str(count))
        return count

    def test_transactions_survive_a_kill(self):
        for want in range(1, 11):
            if want == 5:
                self.cluster.kill(0)
                self.cluster.start(0)
            count, timestamp = self.db.transact(self.increment, 60)
            self.assertEqual(count, want)
            self.assertGreater(timestamp, 0)
        self.assertEqual(self.db.get("t", "z", "n"), b"10")
        cells = list(self.db.scan(pb.RowRange(table="t")))
        self.assertEqual([c.row for c in cells], ["a", "z"])

        def scan(tx):
            tx.set("t", "b", "n", "own")
            tx.lock("t", "c", "n")
            return [c.row for c in tx.scan(pb.RowRange(table="t"))]

        self.assertEqual(self.db.transact(scan)[0], ["a", "b", "z"])

    def test_errors(self):
        with self.assertRaises(Error) as caught:
            self.db.get("absent", "r", "c")
        self.assertEqual(caught.exception.failure.reason, pb.Failure.REASON_NO_TABLE)
        with self.assertRaises(ZeroDivisionError):
            self.db.transact(lambda tx: 1 // 0)
        with self.assertRaises(Error):
            Client(["127.0.0.1:1"]).get("t", "r", "c", 0.2)


class MessagesTest(unittest.TestCase):
    def test_messages_are_those_of_the_proto_file(self):
        with open("../../api/gateway/v1/gateway.proto", encoding="utf-8") as file:
            source = re.sub(r"//.*", "", file.read())
        known = set()

        def add(message):
            known.update(field.name for field in message.fields)
            for enum in message.enum_types:
                known.update(value.name for value in enum.values)
            for nested in message.nested_types:
                add(nested)

        for message in pb.DESCRIPTOR.message_types_by_name.values():
            add(message)
        for enum in pb.DESCRIPTOR.enum_types_by_name.values():
            known.update(value.name for value in enum.values)
        self.assertEqual(known, set(re.findall(r"(\w+) = \d+;", source)), "run make python-generate")


if __name__ == "__main__":
    unittest.main()
