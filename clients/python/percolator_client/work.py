"""Observers: functions that run when cells of a column have changed."""

import dataclasses
import logging
import random
import threading

from percolator_client.client import Error, Transaction, _set
from percolator_client.gateway.v1 import gateway_pb2 as pb

_log = logging.getLogger("percolator_client")

_CALL_SECONDS = 10.0
_SILENCE_SECONDS = 10.0  # a node sends four messages a second
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
_FINISH_ATTEMPTS = 20


@dataclasses.dataclass(frozen=True)
class Change:
    """A change for which an observer runs."""

    row: object  # str, or bytes if it is not valid UTF-8
    commit_timestamp: int  # of the newest change of the row's cell that the run acknowledges
    attempt: int  # failed runs for the change so far


@dataclasses.dataclass(frozen=True)
class Observer:
    """A function for the changes of a column; see observer() and batch_observer()."""

    registration: pb.ObserverRegistration
    run: object  # run(transaction, changes)


class RetryAfter(Exception):
    """Raised by an observer whose outside service refuses it.

    The whole observer waits, in all processes, and nothing counts as a failed run. With seconds 0
    the wait grows from 0.1 to 0.8 s.
    """

    def __init__(self, seconds=0.0, message="an outside service refuses"):
        super().__init__(message)
        self.seconds = seconds


class NotReady(Exception):
    """Raised by an observer that needs something that is not there yet: only every 64th counts."""


class PartialFailure(Exception):
    """Raised by a batch observer: changes that failed, by row. The others commit.

    The transaction must not have written anything for the failed ones.
    """

    def __init__(self, failed):
        super().__init__(f"{len(failed)} changes failed")
        self.failed = failed


def observer(name, table, column, run, **options):
    """Returns an observer that calls run(transaction, change) for each change of a column.

    When run returns, the transaction commits, and acknowledges the change: at most one commits for
    each change. run may be called again after a conflict or an exception, so only the transaction's
    writes are safe from repetition. Once transaction.canceled is set, the run can no longer commit.

    Options are fields of gateway_pb2.ObserverRegistration: weak, concurrency, deadline_ms (default
    30,000), max_attempts (10), max_conflicts (64), debounce_ms, version, priorities.
    """
    return Observer(_registration(name, table, column, 1, options), lambda tx, changes: run(tx, changes[0]))


def batch_observer(name, table, column, run, batch=100, **options):
    """Returns an observer that calls run(transaction, changes) for up to batch changes of different rows.

    If it raises an exception, each half runs again, down to the change that fails; PartialFailure
    names the changes that fail. batch is at most 1,000. Options are those of observer().
    """
    return Observer(_registration(name, table, column, batch, options), run)


def _registration(name, table, column, batch, options):
    registration = pb.ObserverRegistration(name=name, table=table, batch=batch, **options)
    _set(registration, "column", column)
    return registration


class Worker:
    """Runs observers in threads of this process. Client.observe returns it; close it.

    concurrency is the number of runs at a time from each node (default 16, at most 256), lease_ms the
    silence after which a node gives this process's changes to others (default 1000, from 500 to
    60000). Tables of observers, and those named by tables, are created if they do not exist.
    """

    def __init__(self, client, addresses, observers, concurrency=0, lease_ms=0, tables=()):
        request = pb.ObserveRequest(
            observers=[o.registration for o in observers], concurrency=concurrency, lease_ms=lease_ms
        )
        for table in sorted({o.registration.table for o in observers} | set(tables)):
            request.tables.add(name=table)
        functions = {o.registration.name: o.run for o in observers}
        self._changed = threading.Condition()
        self._started = False
        self._refusal = None
        self._links = [_Link(self, client, address, request, functions) for address in addresses]
        self._threads = [threading.Thread(target=self._serve, args=(link,), daemon=True) for link in self._links]
        for thread in self._threads:
            thread.start()

    def ready(self, timeout=30.0):
        """Waits until a node has accepted the observers. Raises its Error if it refuses them."""
        with self._changed:
            self._changed.wait_for(lambda: self._started or self._refusal, timeout)
            if self._refusal:
                raise self._refusal
            if not self._started:
                raise Error("deadline_exceeded", f"no gateway has accepted the observers within {timeout} s")

    def wait(self):
        """Waits until the worker is closed. Raises the Error of a node that refuses the observers."""
        for thread in self._threads:
            thread.join()
        if self._refusal:
            raise self._refusal

    def retire(self):
        """Begins no further run; wait then returns once the running ones have ended."""
        for link in self._links:
            link.retire()

    def close(self):
        """Begins no further run, and waits for the running ones."""
        self.retire()
        self.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _serve(self, link):
        try:
            link.serve()
        except Exception as err:  # pylint: disable=broad-except
            with self._changed:
                self._refusal = self._refusal or err
                self._changed.notify_all()
            self.retire()

    def _note_start(self):
        with self._changed:
            self._started = True
            self._changed.notify_all()


class _Link:
    """The worker's stream from one node, opened again after it breaks."""

    def __init__(self, worker, client, address, request, functions):
        self._owner = worker
        self._client = client
        self._address = address
        self._request = request
        self._functions = functions
        self._retired = threading.Event()
        self._worker = ""  # the node's name of it, while a stream is open
        self._runs = {}  # transactions by session, of the present stream

    def retire(self):
        self._retired.set()
        if self._worker:
            # Not on this thread: it may be a signal handler's, and the node may be slow.
            threading.Thread(target=self._send_retire, args=(self._worker,), daemon=True).start()

    def serve(self):
        """Performs runs until it is retired. Raises the node's refusal of the observers."""
        pause = _FIRST_PAUSE
        while not self._retired.is_set():
            try:
                self._stream()
            except Error as err:
                if self._retired.is_set():
                    return
                if not err.temporary and err.failure.reason != pb.Failure.REASON_NO_TABLE:
                    raise
                pause = _FIRST_PAUSE if self._worker else min(2 * pause, _LONGEST_PAUSE)
                if pause <= 2 * _FIRST_PAUSE:
                    _log.warning("no stream from %s, trying again: %s", self._address, err)
            self._worker = ""
            self._retired.wait(random.uniform(0.5, 1) * pause)

    def _stream(self):
        over, runs = threading.Event(), {}
        self._runs = runs
        try:
            for message in self._client._stream(
                "Work/Observe", self._request, pb.ObserveResponse, self._address, _SILENCE_SECONDS
            ):
                if message.HasField("started"):
                    self._start(message.started, over)
                for session in message.canceled:
                    if session in runs:
                        runs[session].canceled.set()
                for run in message.runs:
                    begun = pb.BeginResponse(
                        session=run.session, start_timestamp=run.start_timestamp, address=self._address
                    )
                    tx = runs[run.session] = Transaction(self._client, begun)
                    threading.Thread(target=self._perform, args=(run, tx, runs), daemon=True).start()
        finally:
            over.set()
            for tx in list(runs.values()):
                tx.canceled.set()

    def _start(self, started, over):
        self._worker = started.worker
        threading.Thread(target=self._renew, args=(started, over), daemon=True).start()
        self._owner._note_start()
        if self._retired.is_set():
            self.retire()

    def _renew(self, started, over):
        lease = started.lease_ms / 1000
        while not over.wait(lease / 4):
            try:
                self._call("Renew", pb.RenewRequest(worker=started.worker), pb.RenewResponse, lease)
            except Error as err:
                if err.failure.reason == pb.Failure.REASON_SESSION_ENDED:
                    return  # the node ends the stream

    def _send_retire(self, worker):
        try:
            self._call("Retire", pb.RetireRequest(worker=worker), pb.RetireResponse)
        except Error:
            pass  # the stream has ended by itself

    def _perform(self, run, tx, runs):
        """Calls an observer's function, and finishes the run."""
        changes = [Change(_row_of(c), c.commit_timestamp, c.attempt) for c in run.changes]
        request = pb.FinishRequest(session=run.session)
        failure = None
        try:
            self._functions[run.observer](tx, changes)
            _move(tx.take(), request)
        except PartialFailure as err:
            failure = err
            _move(tx.take(), request)
            for row, each in err.failed.items():
                _set(request.failed_changes.add(failure=_failure_of(each)), "row", row)
        except BaseException as err:  # pylint: disable=broad-except
            failure = err
            request.failed.CopyFrom(_failure_of(err))
        if failure is not None and not tx.canceled.is_set():
            _log.warning("a run of observer %s failed", run.observer, exc_info=failure)
        self._finish(request, tx.canceled)
        runs.pop(run.session, None)

    def _finish(self, request, canceled):
        """Sends the end of a run, again if the answer is lost: the node performs it once.

        The node ends the run itself if the request does not arrive.
        """
        attempt = 0
        while not canceled.is_set():
            attempt += 1
            try:
                self._call("Finish", request, pb.FinishResponse)
                return
            except Error as err:
                reason = err.failure.reason
                if canceled.is_set() or reason == pb.Failure.REASON_SESSION_ENDED:
                    return
                again = err.temporary or reason == pb.Failure.REASON_SESSION_BUSY
                if attempt == _FINISH_ATTEMPTS or not again:
                    _log.warning("a run was not finished: %s", err)
                    if request.HasField("failed"):
                        return
                    request = pb.FinishRequest(session=request.session, failed=_failure_of(err))
                    attempt = 0
            canceled.wait(0.01 * attempt)

    def _call(self, method, request, response, timeout=_CALL_SECONDS):
        return self._client.call(f"Work/{method}", request, response, self._address, timeout)


def _row_of(change):
    return change.row_bytes if change.WhichOneof("row_as") == "row_bytes" else change.row


def _move(writes, request):
    """Appends the buffered writes to the request that finishes the run."""
    for field in ("writes", "deletes", "notifications", "locks", "validates"):
        getattr(request, field).extend(getattr(writes, field))


def _failure_of(err):
    message = f"{type(err).__name__}: {err}"
    if isinstance(err, RetryAfter):
        wait = max(0, int(err.seconds * 1000))
        return pb.RunFailure(message=message, kind=pb.RunFailure.KIND_RETRY_AFTER, retry_after_ms=wait)
    if isinstance(err, NotReady) or isinstance(err, Error) and err.temporary:
        return pb.RunFailure(message=message, kind=pb.RunFailure.KIND_UNAVAILABLE)
    return pb.RunFailure(message=message)
