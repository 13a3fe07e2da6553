"""Tests against a real node: PERCOLATOR=../../bin/percolator /usr/bin/python3 -m unittest"""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import unittest

from percolator_client import Client, Error, gateway_pb2 as pb


def _free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class ClientTest(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp()
        self.gateway = f"127.0.0.1:{_free_port()}"
        self.listen = f"127.0.0.1:{_free_port()}"
        self.start()
        self.db = Client([self.gateway])
        request = pb.CreateTableRequest(table=pb.TableSpec(name="t", split_keys=["m"]))
        self.db.repeat("Control/CreateTable", request, pb.CreateTableResponse, 60)

    def start(self):
        binary = os.environ.get("PERCOLATOR", "../../bin/percolator")
        self.node = subprocess.Popen(
            [binary, "start", "--dir", self.dir + "/node", "--insecure", "--listen", self.listen,
             "--http", "", "--gateway", self.gateway],
            stderr=subprocess.DEVNULL,
        )

    def kill(self):
        self.node.send_signal(signal.SIGKILL)
        self.node.wait()

    def tearDown(self):
        self.kill()
        shutil.rmtree(self.dir)

    def increment(self, tx):
        count = int(tx.get("t", "a", "n") or b"0") + 1
        tx.set("t", "a", "n", str(count))
        tx.set("t", "z", "n", str(count))
        return count

    def test_transactions_survive_a_kill(self):
        for want in range(1, 11):
            if want == 5:
                self.kill()
                self.start()
            count, timestamp = self.db.transact(self.increment, 60)
            self.assertEqual(count, want)
            self.assertGreater(timestamp, 0)
        self.assertEqual(self.db.get("t", "z", "n"), b"10")
        cells = list(self.db.scan(pb.RowRange(table="t")))
        self.assertEqual([c.row for c in cells], ["a", "z"])

    def test_errors(self):
        with self.assertRaises(Error) as caught:
            self.db.get("absent", "r", "c")
        self.assertEqual(caught.exception.failure.reason, pb.Failure.REASON_NO_TABLE)
        with self.assertRaises(ZeroDivisionError):
            self.db.transact(lambda tx: 1 // 0)
        with self.assertRaises(Error):
            Client(["127.0.0.1:1"]).get("t", "r", "c", 0.2)


if __name__ == "__main__":
    unittest.main()
