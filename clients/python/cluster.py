"""A cluster of real node processes, which tests kill and start again."""

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from percolator_client import Client

BINARY = os.path.abspath(os.environ.get("PERCOLATOR", "../../bin/percolator"))


def free_ports(blocks):
    """Returns the first port of blocks of five that are free now, below those that the system chooses."""
    found = []
    while len(found) < blocks:
        first = 20_000 + 5 * random.randrange(2_400)
        if first not in found and all(_is_free(first + i) for i in range(5)):
            found.append(first)
    return found


def _is_free(port):
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) != 0


class Cluster:
    """Nodes on loopback, which have started when a table is created."""

    def __init__(self, nodes):
        self._dir = tempfile.mkdtemp()
        ports = free_ports(nodes)
        self._listen = [f"127.0.0.1:{port}" for port in ports]
        self.gateways = [f"127.0.0.1:{port + 4}" for port in ports]
        self._nodes = [self._launch(i) for i in range(nodes)]
        with self.client() as db:
            db.create_table("ready", timeout=60)

    def client(self):
        return Client(self.gateways)

    def _launch(self, i):
        others = [address for address in self._listen if address != self._listen[i]]
        join = ["--join", ",".join(others), "--bootstrap-expect", str(len(self._listen))] if others else []
        return subprocess.Popen(
            [BINARY, "start", "--dir", f"{self._dir}/{i}", "--insecure", "--listen", self._listen[i],
             "--http", "", "--gateway", self.gateways[i], *join],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )

    def replicated(self):
        """Waits until each tablet has a replica on three nodes."""
        command = [BINARY, "tablet", "ls", "--addr", ",".join(self._listen), "--insecure", "-o", "json"]
        end = time.monotonic() + 120
        while True:
            listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
            tablets = [json.loads(line) for line in listed.splitlines()]
            if tablets and all(len(tablet["nodes"]) == 3 for tablet in tablets):
                return
            if time.monotonic() > end:
                raise TimeoutError(f"not replicated: {listed}")
            time.sleep(0.1)

    def kill(self, i):
        self._nodes[i].send_signal(signal.SIGKILL)
        self._nodes[i].wait()

    def start(self, i):
        self._nodes[i] = self._launch(i)

    def stop(self):
        for i in range(len(self._nodes)):
            self.kill(i)
        shutil.rmtree(self._dir)
