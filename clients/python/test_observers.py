"""Observers: what each kind of end of a run does, and exactly once while workers and nodes are killed."""

import collections
import logging
import subprocess
import sys
import threading
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

from cluster import Cluster
from percolator_client import Error, PartialFailure, RetryAfter, batch_observer, gateway_pb2 as pb, observer

logging.getLogger("percolator_client").setLevel(logging.CRITICAL)


def write(db, rows):
    def one(n):
        return db.transact(lambda tx: tx.set("pages", f"row/{n % 10}/{n}", "input", "x"), 60)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(one, rows))


def values(db, table, column):
    return [int(c.value) for c in db.scan(pb.RowRange(table=table, columns=[column]), 60)]


class ObserversTest(unittest.TestCase):
    def eventually(self, what, holds, within=120):
        end = time.monotonic() + within
        while not holds():
            self.assertLess(time.monotonic(), end, what)
            time.sleep(0.05)

    def start(self, nodes):
        cluster = Cluster(nodes)
        self.addCleanup(cluster.stop)
        db = cluster.client()
        self.addCleanup(db.close)
        return cluster, db

    def test_ends_of_runs(self):
        _, db = self.start(1)
        seen, attempts, calls = [], [], []
        holding, held = threading.Event(), threading.Event()

        def count(tx, change):
            seen.append(change)
            tx.set("pages", change.row, "count", str(int(tx.get("pages", change.row, "count") or b"0") + 1))

        def refused(tx, change):
            calls.append(change)
            if len(calls) == 1:
                raise RetryAfter(0.3, "slow down")
            tx.set("pages", change.row, "served", "1")

        def fails(_, change):
            attempts.append(change.attempt)
            raise ValueError("always")

        def partial(tx, changes):
            for change in changes:
                if change.attempt > 0:
                    tx.set("pages", change.row, "second", "1")
            failed = {c.row: ValueError("first") for c in changes if c.attempt == 0}
            if failed:
                raise PartialFailure(failed)

        def holds(tx, change):
            holding.set()
            held.wait(60)
            tx.set("gates", change.row, "passed", "0" if tx.canceled.is_set() else "1")

        worker = db.observe([
            observer("count", "pages", "input", count),
            observer("refused", "pages", "input", refused),
            observer("fails", "pages", "input", fails, max_attempts=2),
            batch_observer("partial", "pages", "input", partial),
            observer("holds", "gates", "open", holds),
        ])
        worker.ready(60)
        write(db, range(3))
        self.eventually("all is done", lambda: len(attempts) == 6 and all(
            values(db, "pages", column) == [1, 1, 1] for column in ("count", "second", "served")))
        self.assertEqual(sorted(attempts), [0, 0, 0, 1, 1, 1])
        self.assertEqual(len(seen), 3)
        self.assertGreaterEqual(len(calls), 4)

        db.transact(lambda tx: tx.set("gates", "g", "open", "x"))
        self.assertTrue(holding.wait(60))
        worker.retire()
        write(db, range(3, 6))
        held.set()
        worker.wait()
        self.assertEqual(db.get("gates", "g", "passed"), b"1")
        self.assertEqual(len(seen), 3, "a closed worker ran for a later change")

        # Contradictions are refused for good.
        other = db.observe([observer("count", "pages", "input", count, weak=True)])
        with self.assertRaises(Error) as caught:
            other.wait()
        self.assertEqual(caught.exception.failure.reason, pb.Failure.REASON_INVALID)
        with self.assertRaises(Error):
            other.ready()

    def test_each_change_counts_once_while_workers_and_nodes_are_killed(self):
        cluster, db = self.start(3)
        workers = {}

        def launch(i):
            workers[i] = subprocess.Popen(
                [sys.executable, "counter.py", *cluster.gateways], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            workers[i].stdout.readline()  # ready

        def kill(i):
            workers[i].kill()
            workers[i].wait()
            workers[i].stdout.close()

        def kill_all():
            for i in list(workers):
                kill(i)

        self.addCleanup(kill_all)
        launch(0)
        launch(1)
        cluster.replicated()
        for node in (1, 2):
            rows = range(150 * (node - 1), 150 * node)
            writing = threading.Thread(target=write, args=(db, rows))
            writing.start()
            self.eventually("runs have begun", lambda: len(values(db, "pages", "count")) > rows[0] + 20)
            kill(node - 1)
            cluster.kill(node)
            launch(node - 1)
            cluster.start(node)
            writing.join()

        def done():
            counted = values(db, "pages", "count")
            return len(counted) == 300 and db.get("totals", "all", "batches", 60) == b"300"

        self.eventually("every row is counted", done)
        _, timestamp = db.transact(lambda tx: tx.set("pages", "last", "input", "x"))
        self.assertEqual(db.wait_for(timestamp, 60), [])
        self.assertEqual(collections.Counter(values(db, "pages", "count")), {1: 301})
        self.assertEqual(sum(values(db, "totals", "count")), 301)
        self.assertEqual(db.get("totals", "all", "batches"), b"301")


if __name__ == "__main__":
    unittest.main()
