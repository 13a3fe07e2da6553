"""A worker that test_observers.py starts and kills. Its arguments are the addresses of the gateways."""

import sys

from percolator_client import Client, batch_observer, observer


def count(tx, change):
    for table, row in (("pages", change.row), ("totals", change.row[-1])):
        tx.set(table, row, "count", str(int(tx.get(table, row, "count") or b"0") + 1))


def add(tx, changes):
    tx.set("totals", "all", "batches", str(int(tx.get("totals", "all", "batches") or b"0") + len(changes)))


worker = Client(sys.argv[1:]).observe(
    [
        observer("count", "pages", "input", count),
        batch_observer("batches", "pages", "input", add, batch=20, concurrency=1),
    ],
    tables=["totals"],
)
worker.ready(60)
print("ready", flush=True)
worker.wait()
