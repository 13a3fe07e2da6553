"""Calls of the gateway's methods, transactions with retries, scans and the change feed."""

import base64
import http.client
import json
import random
import ssl
import struct
import threading
import time
import uuid

from percolator_client.gateway.v1 import gateway_pb2 as pb

_SERVICE = "percolator.gateway.v1"
_ATTEMPT_SECONDS = 10.0
_LEASE_MS = 30_000
_END_OF_STREAM = 2

_TEMPORARY = {
    pb.Failure.REASON_CONFLICT,
    pb.Failure.REASON_LOCKED,
    pb.Failure.REASON_COMMIT_UNKNOWN,
    pb.Failure.REASON_OVERLOADED,
    pb.Failure.REASON_UNAVAILABLE,
    pb.Failure.REASON_SESSION_ENDED,
    pb.Failure.REASON_STARTING,
    pb.Failure.REASON_DEADLINE,
}


class Error(Exception):
    """A failed call. Its failure says why, what to do, and whether the call may have committed."""

    def __init__(self, code, message, failure=None):
        super().__init__(f"{code}: {message}")
        self.code = code
        self.unanswered = failure is None
        self.failure = failure or pb.Failure(
            reason=pb.Failure.REASON_UNAVAILABLE, maybe_committed=True
        )

    @property
    def temporary(self):
        """Whether a repetition of the call can succeed without a change of it."""
        return self.failure.reason in _TEMPORARY


def _error(body):
    try:
        parsed = json.loads(body)
    except ValueError:
        return Error("unavailable", "the answer is not the gateway's")
    for detail in parsed.get("details", []):
        if detail.get("type", "").endswith(f"{_SERVICE}.Failure"):
            value = detail["value"]
            data = base64.b64decode(value + "=" * (-len(value) % 4))
            failure = pb.Failure.FromString(data)
            return Error(parsed.get("code"), parsed.get("message"), failure)
    return Error(parsed.get("code"), parsed.get("message"))


class Client:
    """Client of the gateways at addresses, "host:port" each. Threads may share it.

    tls is an ssl.SSLContext with the cluster's CA and the client's certificate; without it the
    connection is plain text. token is one that `percolator token create` has printed, in place of
    a client certificate.
    """

    def __init__(self, addresses, tls=None, token=None):
        if not addresses:
            raise ValueError("addresses is empty; it must name at least one gateway")
        self._addresses = list(addresses)
        self._tls = tls
        self._token = token
        self._lock = threading.Lock()  # of the following, and of the order of the addresses
        self._idle = {}  # connections by address

    def close(self):
        """Closes the idle connections."""
        with self._lock:
            idle, self._idle = self._idle, {}
        for connections in idle.values():
            for connection in connections:
                connection.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def call(self, method, request, response, address=None, timeout=_ATTEMPT_SECONDS):
        """Calls a method such as "Gateway/Read" once."""
        address = address or self._addresses[0]
        connection = self._connection(address, timeout)
        headers = {"Connect-Timeout-Ms": str(int(timeout * 1000))}
        try:
            answer = self._post(connection, method, request.SerializeToString(), "application/proto", headers)
            body = answer.read()
        except (OSError, http.client.HTTPException) as err:
            connection.close()
            self._leave(address)
            raise Error("unavailable", str(err)) from err
        with self._lock:
            self._idle.setdefault(address, []).append(connection)
        if answer.status != 200:
            failed = _error(body)
            if failed.failure.reason in (pb.Failure.REASON_STARTING, pb.Failure.REASON_DEADLINE):
                self._leave(address)
            raise failed
        return response.FromString(body)

    def repeat(self, method, request, response, timeout=30.0):
        """Calls a method until it succeeds, fails for good, or timeout seconds have passed.

        A repetition must be harmless: reads are, and a Transact with an idempotency key.
        """
        return self._retry(lambda left: self.call(method, request, response, timeout=left), timeout)

    def get(self, table, row, column, timeout=30.0):
        """Returns a cell's bytes in the newest committed state, or None."""
        request = pb.ReadRequest(keys=[_key(table, row, column)], encoding=pb.ENCODING_BYTES)
        cell = self.repeat("Gateway/Read", request, pb.ReadResponse, timeout).cells[0]
        return cell.value_bytes if cell.found else None

    def transact(self, run, timeout=30.0):
        """Runs run(transaction) and commits, again after conflicts, until timeout seconds have passed.

        It commits once, also if an answer is lost. run must have no other effect than its writes. It
        returns what run has returned, and the commit timestamp.
        """
        key, ran = str(uuid.uuid4()), []
        return self._retry(lambda left: self._attempt(run, key, ran), timeout)

    def _attempt(self, run, key, ran):
        request = pb.BeginRequest(idempotency_key=key, lease_ms=_LEASE_MS)
        begun = self.call("Gateway/Begin", request, pb.BeginResponse)
        if begun.already_committed and ran:
            return ran[-1], begun.already_committed
        tx = Transaction(self, begun)
        try:
            ran.append(run(tx))
        except BaseException:
            tx.rollback()
            raise
        return ran[-1], tx.commit()

    def scan(self, row_range, timeout=30.0):
        """Yields the cells of a gateway_pb2.RowRange in one snapshot, by row, then by column."""
        request = pb.ScanRequest(range=row_range)
        while True:
            page = self.repeat("Gateway/ScanPage", request, pb.ScanResponse, timeout)
            yield from page.cells
            if not page.page_token:
                return
            request.page_token = page.page_token

    def create_table(self, name, timeout=30.0):
        """Creates a table, unless it exists."""
        request = pb.CreateTableRequest(table=pb.TableSpec(name=name))
        self.repeat("Control/CreateTable", request, pb.CreateTableResponse, timeout)

    def wait_for(self, timestamp, timeout=30.0):
        """Waits until the observers of a commit, and those of what they have written, have run.

        It returns the observers with parked or held changes, which it does not wait for.
        """
        request = pb.WaitForRequest(timestamp=timestamp)
        return list(self.repeat("Gateway/WaitFor", request, pb.WaitForResponse, timeout).pending)

    def observe(self, observers, **options):
        """Runs observers, from observer() or batch_observer(), with a stream from each gateway.

        Returns a Worker. Options are those of Worker.
        """
        from percolator_client.work import Worker  # pylint: disable=import-outside-toplevel,cyclic-import

        return Worker(self, self._addresses, observers, **options)

    def watch(self, request, timeout=30.0):
        """Yields the messages of a gateway_pb2.WatchRequest.

        After a failure it continues from the last resolved timestamp, so that a change can come again.
        """
        while True:
            stream = self._stream("Changes/Watch", request, pb.WatchResponse)
            try:
                for answer in stream:
                    yield answer
                    request.after = answer.resolved_timestamp or request.after
            except Error as err:
                if not err.temporary:
                    raise
                time.sleep(min(1.0, timeout))

    def _retry(self, attempt, timeout):
        end, pause = time.monotonic() + timeout, 0.01
        while True:
            try:
                return attempt(max(0.001, min(_ATTEMPT_SECONDS, end - time.monotonic())))
            except Error as err:
                wait = max(pause * random.uniform(0.5, 1), err.failure.retry_after_ms / 1000)
                if not err.temporary or time.monotonic() + wait > end:
                    raise
            time.sleep(wait)
            pause = min(2 * pause, 1.0)

    def _stream(self, method, request, response, address=None, silence=None):
        """Yields a stream's messages. silence is the time in seconds after which the node counts as lost."""
        address = address or self._addresses[0]
        data = request.SerializeToString()
        connection = self._connection(address, silence, fresh=True)
        try:
            framed = struct.pack(">BI", 0, len(data)) + data
            answer = self._post(connection, method, framed, "application/connect+proto", {})
            while True:
                head = answer.read(5)
                if len(head) < 5:
                    raise Error("unavailable", "the stream has been cut off")
                flags, length = struct.unpack(">BI", head)
                body = answer.read(length)
                if flags & _END_OF_STREAM:
                    failure = json.loads(body).get("error")
                    raise _error(json.dumps(failure or {"code": "unavailable", "message": "the stream has ended"}))
                yield response.FromString(body)
        except (OSError, http.client.HTTPException) as err:
            raise Error("unavailable", str(err)) from err
        finally:
            connection.close()
            self._leave(address)

    def _connection(self, address, timeout, fresh=False):
        """Returns a connection for one call, an idle one unless fresh."""
        with self._lock:
            idle = self._idle.get(address)
            connection = idle.pop() if idle and not fresh else None
        if connection is None:
            host, port = address.rsplit(":", 1)
            host = host.strip("[]")
            connection = (
                http.client.HTTPSConnection(host, int(port), context=self._tls)
                if self._tls
                else http.client.HTTPConnection(host, int(port))
            )
        connection.timeout = timeout
        if connection.sock:
            connection.sock.settimeout(timeout)
        return connection

    def _post(self, connection, method, data, content_type, headers):
        headers = {"Content-Type": content_type, "Connect-Protocol-Version": "1", **headers}
        if self._token:
            headers["Authorization"] = "Bearer " + self._token
        connection.request("POST", f"/{_SERVICE}.{method}", data, headers)
        return connection.getresponse()

    def _leave(self, address):
        """Closes the idle connections, and sends later calls to the next address."""
        with self._lock:
            idle = self._idle.pop(address, [])
            if address == self._addresses[0]:
                self._addresses = self._addresses[1:] + self._addresses[:1]
        for connection in idle:
            connection.close()


def _key(table, row, column):
    key = pb.Key(table=table)
    _set(key, "row", row)
    _set(key, "column", column)
    return key


def _set(message, field, value):
    """Sets the field of the text, or that of the bytes."""
    setattr(message, field if isinstance(value, str) else field + "_bytes", value)


class Transaction:
    """Reads and writes of a function that Client.transact or an observer runs."""

    def __init__(self, client, begun):
        self._client = client
        self._begun = begun
        self._writes = pb.WriteRequest(session=begun.session)
        self._written = False
        self.canceled = threading.Event()  # an observer's run can no longer commit

    def get(self, table, row, column):
        """Returns a cell's bytes, or None."""
        self._flush()
        request = pb.ReadRequest(
            keys=[_key(table, row, column)], session=self._begun.session, encoding=pb.ENCODING_BYTES
        )
        cell = self._call("Read", request, pb.ReadResponse).cells[0]
        return cell.value_bytes if cell.found else None

    def set(self, table, row, column, value):
        """Writes a cell at the commit. value is a str or bytes."""
        write = self._writes.writes.add(table=table)
        _set(write, "row", row)
        _set(write, "column", column)
        _set(write, "value", value)

    def delete(self, table, row, column):
        """Deletes a cell at the commit."""
        self._writes.deletes.append(_key(table, row, column))

    def scan(self, row_range):
        """Yields the cells of a gateway_pb2.RowRange, with this transaction's writes."""
        self._flush()
        request = pb.ScanRequest(range=row_range, session=self._begun.session)
        while True:
            page = self._call("ScanPage", request, pb.ScanResponse)
            yield from page.cells
            if not page.page_token:
                return
            request.page_token = page.page_token

    def notify(self, table, row, column):
        """Notifies the observers of a notify-only column at the commit."""
        self._writes.notifications.append(_key(table, row, column))

    def lock(self, table, row, column):
        """Conflicts with all transactions that write or lock the cell, as a write does."""
        self._writes.locks.append(_key(table, row, column))

    def validate(self, table, row, column):
        """Makes the commit fail if the cell, which was read, has changed since."""
        self._writes.validates.append(_key(table, row, column))

    def commit(self):
        self._flush()
        if not self._written:
            self.rollback()
            return self._begun.start_timestamp
        request = pb.CommitRequest(session=self._begun.session)
        return self._call("Commit", request, pb.CommitResponse).commit_timestamp

    def rollback(self):
        try:
            self._call("Rollback", pb.RollbackRequest(session=self._begun.session), pb.RollbackResponse)
        except Error:
            pass  # the session's lease ends it

    def take(self):
        """Returns the WriteRequest of what is not sent yet, and empties it."""
        writes, self._writes = self._writes, pb.WriteRequest(session=self._begun.session)
        return writes

    def _flush(self):
        if self._writes.ByteSize() > pb.WriteRequest(session=self._begun.session).ByteSize():
            self._call("Write", self.take(), pb.WriteResponse)
            self._written = True

    def _call(self, method, request, response):
        return self._client.call(f"Gateway/{method}", request, response, self._begun.address or None)
