from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor
ENCODING_BYTES: Encoding
ENCODING_UNSPECIFIED: Encoding

class AdvanceSubscriberRequest(_message.Message):
    __slots__ = ["subscriber", "timestamp"]
    SUBSCRIBER_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    subscriber: str
    timestamp: int
    def __init__(self, subscriber: _Optional[str] = ..., timestamp: _Optional[int] = ...) -> None: ...

class AdvanceSubscriberResponse(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class BeginRequest(_message.Message):
    __slots__ = ["idempotency_key", "lease_ms", "name", "read_only", "timestamp"]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    READ_ONLY_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    idempotency_key: str
    lease_ms: int
    name: str
    read_only: bool
    timestamp: int
    def __init__(self, read_only: bool = ..., timestamp: _Optional[int] = ..., lease_ms: _Optional[int] = ..., name: _Optional[str] = ..., idempotency_key: _Optional[str] = ...) -> None: ...

class BeginResponse(_message.Message):
    __slots__ = ["address", "already_committed", "lease_ms", "node_id", "session", "start_timestamp"]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    ALREADY_COMMITTED_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    START_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    address: str
    already_committed: int
    lease_ms: int
    node_id: int
    session: str
    start_timestamp: int
    def __init__(self, session: _Optional[str] = ..., start_timestamp: _Optional[int] = ..., lease_ms: _Optional[int] = ..., node_id: _Optional[int] = ..., address: _Optional[str] = ..., already_committed: _Optional[int] = ...) -> None: ...

class Cell(_message.Message):
    __slots__ = ["column", "column_bytes", "commit_timestamp", "found", "row", "row_bytes", "table", "value", "value_bytes"]
    COLUMN_BYTES_FIELD_NUMBER: _ClassVar[int]
    COLUMN_FIELD_NUMBER: _ClassVar[int]
    COMMIT_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    FOUND_FIELD_NUMBER: _ClassVar[int]
    ROW_BYTES_FIELD_NUMBER: _ClassVar[int]
    ROW_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    VALUE_BYTES_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    column: str
    column_bytes: bytes
    commit_timestamp: int
    found: bool
    row: str
    row_bytes: bytes
    table: str
    value: str
    value_bytes: bytes
    def __init__(self, table: _Optional[str] = ..., row: _Optional[str] = ..., row_bytes: _Optional[bytes] = ..., column: _Optional[str] = ..., column_bytes: _Optional[bytes] = ..., value: _Optional[str] = ..., value_bytes: _Optional[bytes] = ..., found: bool = ..., commit_timestamp: _Optional[int] = ...) -> None: ...

class CellWrite(_message.Message):
    __slots__ = ["column", "column_bytes", "row", "row_bytes", "table", "value", "value_bytes"]
    COLUMN_BYTES_FIELD_NUMBER: _ClassVar[int]
    COLUMN_FIELD_NUMBER: _ClassVar[int]
    ROW_BYTES_FIELD_NUMBER: _ClassVar[int]
    ROW_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    VALUE_BYTES_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    column: str
    column_bytes: bytes
    row: str
    row_bytes: bytes
    table: str
    value: str
    value_bytes: bytes
    def __init__(self, table: _Optional[str] = ..., row: _Optional[str] = ..., row_bytes: _Optional[bytes] = ..., column: _Optional[str] = ..., column_bytes: _Optional[bytes] = ..., value: _Optional[str] = ..., value_bytes: _Optional[bytes] = ...) -> None: ...

class Change(_message.Message):
    __slots__ = ["column", "column_bytes", "commit_timestamp", "deleted", "initial", "row", "row_bytes", "table", "value", "value_bytes"]
    COLUMN_BYTES_FIELD_NUMBER: _ClassVar[int]
    COLUMN_FIELD_NUMBER: _ClassVar[int]
    COMMIT_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    INITIAL_FIELD_NUMBER: _ClassVar[int]
    ROW_BYTES_FIELD_NUMBER: _ClassVar[int]
    ROW_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    VALUE_BYTES_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    column: str
    column_bytes: bytes
    commit_timestamp: int
    deleted: bool
    initial: bool
    row: str
    row_bytes: bytes
    table: str
    value: str
    value_bytes: bytes
    def __init__(self, table: _Optional[str] = ..., row: _Optional[str] = ..., row_bytes: _Optional[bytes] = ..., column: _Optional[str] = ..., column_bytes: _Optional[bytes] = ..., value: _Optional[str] = ..., value_bytes: _Optional[bytes] = ..., deleted: bool = ..., initial: bool = ..., commit_timestamp: _Optional[int] = ...) -> None: ...

class ChangeFailure(_message.Message):
    __slots__ = ["failure", "row", "row_bytes"]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    ROW_BYTES_FIELD_NUMBER: _ClassVar[int]
    ROW_FIELD_NUMBER: _ClassVar[int]
    failure: RunFailure
    row: str
    row_bytes: bytes
    def __init__(self, row: _Optional[str] = ..., row_bytes: _Optional[bytes] = ..., failure: _Optional[_Union[RunFailure, _Mapping]] = ...) -> None: ...

class ColumnExpiry(_message.Message):
    __slots__ = ["after_ms", "column", "column_bytes"]
    AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    COLUMN_BYTES_FIELD_NUMBER: _ClassVar[int]
    COLUMN_FIELD_NUMBER: _ClassVar[int]
    after_ms: int
    column: str
    column_bytes: bytes
    def __init__(self, column: _Optional[str] = ..., column_bytes: _Optional[bytes] = ..., after_ms: _Optional[int] = ...) -> None: ...

class CommitRequest(_message.Message):
    __slots__ = ["session"]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    session: str
    def __init__(self, session: _Optional[str] = ...) -> None: ...

class CommitResponse(_message.Message):
    __slots__ = ["commit_timestamp"]
    COMMIT_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    commit_timestamp: int
    def __init__(self, commit_timestamp: _Optional[int] = ...) -> None: ...

class Condition(_message.Message):
    __slots__ = ["column", "column_bytes", "commit_timestamp", "equals", "equals_bytes", "exists", "row", "row_bytes", "table"]
    COLUMN_BYTES_FIELD_NUMBER: _ClassVar[int]
    COLUMN_FIELD_NUMBER: _ClassVar[int]
    COMMIT_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    EQUALS_BYTES_FIELD_NUMBER: _ClassVar[int]
    EQUALS_FIELD_NUMBER: _ClassVar[int]
    EXISTS_FIELD_NUMBER: _ClassVar[int]
    ROW_BYTES_FIELD_NUMBER: _ClassVar[int]
    ROW_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    column: str
    column_bytes: bytes
    commit_timestamp: int
    equals: str
    equals_bytes: bytes
    exists: bool
    row: str
    row_bytes: bytes
    table: str
    def __init__(self, table: _Optional[str] = ..., row: _Optional[str] = ..., row_bytes: _Optional[bytes] = ..., column: _Optional[str] = ..., column_bytes: _Optional[bytes] = ..., exists: bool = ..., equals: _Optional[str] = ..., equals_bytes: _Optional[bytes] = ..., commit_timestamp: _Optional[int] = ...) -> None: ...

class ControlObserverRequest(_message.Message):
    __slots__ = ["limit", "name", "paused", "retire"]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    RETIRE_FIELD_NUMBER: _ClassVar[int]
    limit: int
    name: str
    paused: bool
    retire: bool
    def __init__(self, name: _Optional[str] = ..., paused: bool = ..., limit: _Optional[int] = ..., retire: bool = ...) -> None: ...

class ControlObserverResponse(_message.Message):
    __slots__ = ["observer"]
    OBSERVER_FIELD_NUMBER: _ClassVar[int]
    observer: Observer
    def __init__(self, observer: _Optional[_Union[Observer, _Mapping]] = ...) -> None: ...

class CreateTableRequest(_message.Message):
    __slots__ = ["table"]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    table: TableSpec
    def __init__(self, table: _Optional[_Union[TableSpec, _Mapping]] = ...) -> None: ...

class CreateTableResponse(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class DropSubscriberRequest(_message.Message):
    __slots__ = ["subscriber"]
    SUBSCRIBER_FIELD_NUMBER: _ClassVar[int]
    subscriber: str
    def __init__(self, subscriber: _Optional[str] = ...) -> None: ...

class DropSubscriberResponse(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class DropTableRequest(_message.Message):
    __slots__ = ["name"]
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DropTableResponse(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class Expiry(_message.Message):
    __slots__ = ["after_ms", "columns"]
    AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    after_ms: int
    columns: _containers.RepeatedCompositeFieldContainer[ColumnExpiry]
    def __init__(self, after_ms: _Optional[int] = ..., columns: _Optional[_Iterable[_Union[ColumnExpiry, _Mapping]]] = ...) -> None: ...

class Failure(_message.Message):
    __slots__ = ["maybe_committed", "reason", "remedy", "retry_after_ms"]
    class Reason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = []
    MAYBE_COMMITTED_FIELD_NUMBER: _ClassVar[int]
    REASON_CANCELED: Failure.Reason
    REASON_COMMIT_UNKNOWN: Failure.Reason
    REASON_CONFLICT: Failure.Reason
    REASON_DEADLINE: Failure.Reason
    REASON_DISK_FULL: Failure.Reason
    REASON_FIELD_NUMBER: _ClassVar[int]
    REASON_INTERNAL: Failure.Reason
    REASON_INVALID: Failure.Reason
    REASON_KEY_REUSED: Failure.Reason
    REASON_LOCKED: Failure.Reason
    REASON_NOTIFY_ONLY: Failure.Reason
    REASON_NO_TABLE: Failure.Reason
    REASON_OVERLOADED: Failure.Reason
    REASON_PERMISSION: Failure.Reason
    REASON_POSITION_LOST: Failure.Reason
    REASON_SESSION_BUSY: Failure.Reason
    REASON_SESSION_ELSEWHERE: Failure.Reason
    REASON_SESSION_ENDED: Failure.Reason
    REASON_SNAPSHOT_TOO_OLD: Failure.Reason
    REASON_STARTING: Failure.Reason
    REASON_TOO_LARGE: Failure.Reason
    REASON_UNAUTHENTICATED: Failure.Reason
    REASON_UNAVAILABLE: Failure.Reason
    REASON_UNSPECIFIED: Failure.Reason
    REMEDY_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    maybe_committed: bool
    reason: Failure.Reason
    remedy: str
    retry_after_ms: int
    def __init__(self, reason: _Optional[_Union[Failure.Reason, str]] = ..., remedy: _Optional[str] = ..., retry_after_ms: _Optional[int] = ..., maybe_committed: bool = ...) -> None: ...

class FinishRequest(_message.Message):
    __slots__ = ["deletes", "failed", "failed_changes", "locks", "notifications", "session", "validates", "writes"]
    DELETES_FIELD_NUMBER: _ClassVar[int]
    FAILED_CHANGES_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    LOCKS_FIELD_NUMBER: _ClassVar[int]
    NOTIFICATIONS_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    VALIDATES_FIELD_NUMBER: _ClassVar[int]
    WRITES_FIELD_NUMBER: _ClassVar[int]
    deletes: _containers.RepeatedCompositeFieldContainer[Key]
    failed: RunFailure
    failed_changes: _containers.RepeatedCompositeFieldContainer[ChangeFailure]
    locks: _containers.RepeatedCompositeFieldContainer[Key]
    notifications: _containers.RepeatedCompositeFieldContainer[Key]
    session: str
    validates: _containers.RepeatedCompositeFieldContainer[Key]
    writes: _containers.RepeatedCompositeFieldContainer[CellWrite]
    def __init__(self, session: _Optional[str] = ..., writes: _Optional[_Iterable[_Union[CellWrite, _Mapping]]] = ..., deletes: _Optional[_Iterable[_Union[Key, _Mapping]]] = ..., notifications: _Optional[_Iterable[_Union[Key, _Mapping]]] = ..., locks: _Optional[_Iterable[_Union[Key, _Mapping]]] = ..., validates: _Optional[_Iterable[_Union[Key, _Mapping]]] = ..., failed: _Optional[_Union[RunFailure, _Mapping]] = ..., failed_changes: _Optional[_Iterable[_Union[ChangeFailure, _Mapping]]] = ...) -> None: ...

class FinishResponse(_message.Message):
    __slots__ = ["commit_timestamp", "committed"]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    COMMIT_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    commit_timestamp: int
    committed: bool
    def __init__(self, committed: bool = ..., commit_timestamp: _Optional[int] = ...) -> None: ...

class KeepAliveRequest(_message.Message):
    __slots__ = ["session"]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    session: str
    def __init__(self, session: _Optional[str] = ...) -> None: ...

class KeepAliveResponse(_message.Message):
    __slots__ = ["lease_ms"]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    lease_ms: int
    def __init__(self, lease_ms: _Optional[int] = ...) -> None: ...

class Key(_message.Message):
    __slots__ = ["column", "column_bytes", "row", "row_bytes", "table"]
    COLUMN_BYTES_FIELD_NUMBER: _ClassVar[int]
    COLUMN_FIELD_NUMBER: _ClassVar[int]
    ROW_BYTES_FIELD_NUMBER: _ClassVar[int]
    ROW_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    column: str
    column_bytes: bytes
    row: str
    row_bytes: bytes
    table: str
    def __init__(self, table: _Optional[str] = ..., row: _Optional[str] = ..., row_bytes: _Optional[bytes] = ..., column: _Optional[str] = ..., column_bytes: _Optional[bytes] = ...) -> None: ...

class ListObserversRequest(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class ListObserversResponse(_message.Message):
    __slots__ = ["observers"]
    OBSERVERS_FIELD_NUMBER: _ClassVar[int]
    observers: _containers.RepeatedCompositeFieldContainer[Observer]
    def __init__(self, observers: _Optional[_Iterable[_Union[Observer, _Mapping]]] = ...) -> None: ...

class ListTablesRequest(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class ListTablesResponse(_message.Message):
    __slots__ = ["tables"]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    tables: _containers.RepeatedCompositeFieldContainer[TableSpec]
    def __init__(self, tables: _Optional[_Iterable[_Union[TableSpec, _Mapping]]] = ...) -> None: ...

class ObserveRequest(_message.Message):
    __slots__ = ["concurrency", "encoding", "lease_ms", "observers", "tables"]
    CONCURRENCY_FIELD_NUMBER: _ClassVar[int]
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    OBSERVERS_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    concurrency: int
    encoding: Encoding
    lease_ms: int
    observers: _containers.RepeatedCompositeFieldContainer[ObserverRegistration]
    tables: _containers.RepeatedCompositeFieldContainer[TableSpec]
    def __init__(self, observers: _Optional[_Iterable[_Union[ObserverRegistration, _Mapping]]] = ..., concurrency: _Optional[int] = ..., lease_ms: _Optional[int] = ..., tables: _Optional[_Iterable[_Union[TableSpec, _Mapping]]] = ..., encoding: _Optional[_Union[Encoding, str]] = ...) -> None: ...

class ObserveResponse(_message.Message):
    __slots__ = ["canceled", "runs", "started"]
    CANCELED_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    canceled: _containers.RepeatedScalarFieldContainer[str]
    runs: _containers.RepeatedCompositeFieldContainer[Run]
    started: WorkerStarted
    def __init__(self, started: _Optional[_Union[WorkerStarted, _Mapping]] = ..., runs: _Optional[_Iterable[_Union[Run, _Mapping]]] = ..., canceled: _Optional[_Iterable[str]] = ...) -> None: ...

class ObservedChange(_message.Message):
    __slots__ = ["attempt", "commit_timestamp", "row", "row_bytes"]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    COMMIT_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    ROW_BYTES_FIELD_NUMBER: _ClassVar[int]
    ROW_FIELD_NUMBER: _ClassVar[int]
    attempt: int
    commit_timestamp: int
    row: str
    row_bytes: bytes
    def __init__(self, row: _Optional[str] = ..., row_bytes: _Optional[bytes] = ..., commit_timestamp: _Optional[int] = ..., attempt: _Optional[int] = ...) -> None: ...

class Observer(_message.Message):
    __slots__ = ["column", "column_bytes", "commits", "conflicts", "failures", "limit", "name", "node_ids", "notifications", "parked", "paused", "retired", "runs", "table", "weak"]
    COLUMN_BYTES_FIELD_NUMBER: _ClassVar[int]
    COLUMN_FIELD_NUMBER: _ClassVar[int]
    COMMITS_FIELD_NUMBER: _ClassVar[int]
    CONFLICTS_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    NODE_IDS_FIELD_NUMBER: _ClassVar[int]
    NOTIFICATIONS_FIELD_NUMBER: _ClassVar[int]
    PARKED_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    RETIRED_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    WEAK_FIELD_NUMBER: _ClassVar[int]
    column: str
    column_bytes: bytes
    commits: int
    conflicts: int
    failures: int
    limit: int
    name: str
    node_ids: _containers.RepeatedScalarFieldContainer[int]
    notifications: int
    parked: int
    paused: bool
    retired: bool
    runs: int
    table: str
    weak: bool
    def __init__(self, name: _Optional[str] = ..., table: _Optional[str] = ..., column: _Optional[str] = ..., column_bytes: _Optional[bytes] = ..., weak: bool = ..., paused: bool = ..., retired: bool = ..., limit: _Optional[int] = ..., notifications: _Optional[int] = ..., parked: _Optional[int] = ..., runs: _Optional[int] = ..., commits: _Optional[int] = ..., conflicts: _Optional[int] = ..., failures: _Optional[int] = ..., node_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class ObserverPending(_message.Message):
    __slots__ = ["held", "observer", "parked"]
    HELD_FIELD_NUMBER: _ClassVar[int]
    OBSERVER_FIELD_NUMBER: _ClassVar[int]
    PARKED_FIELD_NUMBER: _ClassVar[int]
    held: int
    observer: str
    parked: int
    def __init__(self, observer: _Optional[str] = ..., parked: _Optional[int] = ..., held: _Optional[int] = ...) -> None: ...

class ObserverRegistration(_message.Message):
    __slots__ = ["batch", "column", "column_bytes", "concurrency", "deadline_ms", "debounce_ms", "max_attempts", "max_conflicts", "name", "priorities", "table", "version", "weak"]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    COLUMN_BYTES_FIELD_NUMBER: _ClassVar[int]
    COLUMN_FIELD_NUMBER: _ClassVar[int]
    CONCURRENCY_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    DEBOUNCE_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    MAX_CONFLICTS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PRIORITIES_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    WEAK_FIELD_NUMBER: _ClassVar[int]
    batch: int
    column: str
    column_bytes: bytes
    concurrency: int
    deadline_ms: int
    debounce_ms: int
    max_attempts: int
    max_conflicts: int
    name: str
    priorities: _containers.RepeatedCompositeFieldContainer[RowPriority]
    table: str
    version: int
    weak: bool
    def __init__(self, name: _Optional[str] = ..., table: _Optional[str] = ..., column: _Optional[str] = ..., column_bytes: _Optional[bytes] = ..., weak: bool = ..., batch: _Optional[int] = ..., concurrency: _Optional[int] = ..., deadline_ms: _Optional[int] = ..., max_attempts: _Optional[int] = ..., max_conflicts: _Optional[int] = ..., debounce_ms: _Optional[int] = ..., version: _Optional[int] = ..., priorities: _Optional[_Iterable[_Union[RowPriority, _Mapping]]] = ...) -> None: ...

class ReadRequest(_message.Message):
    __slots__ = ["encoding", "keys", "session", "timestamp"]
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    encoding: Encoding
    keys: _containers.RepeatedCompositeFieldContainer[Key]
    session: str
    timestamp: int
    def __init__(self, keys: _Optional[_Iterable[_Union[Key, _Mapping]]] = ..., timestamp: _Optional[int] = ..., session: _Optional[str] = ..., encoding: _Optional[_Union[Encoding, str]] = ...) -> None: ...

class ReadResponse(_message.Message):
    __slots__ = ["cells", "timestamp"]
    CELLS_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    cells: _containers.RepeatedCompositeFieldContainer[Cell]
    timestamp: int
    def __init__(self, cells: _Optional[_Iterable[_Union[Cell, _Mapping]]] = ..., timestamp: _Optional[int] = ...) -> None: ...

class RenewRequest(_message.Message):
    __slots__ = ["worker"]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    worker: str
    def __init__(self, worker: _Optional[str] = ...) -> None: ...

class RenewResponse(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class ReplayObserverRequest(_message.Message):
    __slots__ = ["action", "below_version", "name"]
    class Action(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = []
    ACTION_CANCEL: ReplayObserverRequest.Action
    ACTION_FIELD_NUMBER: _ClassVar[int]
    ACTION_READ: ReplayObserverRequest.Action
    ACTION_START: ReplayObserverRequest.Action
    ACTION_UNSPECIFIED: ReplayObserverRequest.Action
    BELOW_VERSION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    action: ReplayObserverRequest.Action
    below_version: int
    name: str
    def __init__(self, name: _Optional[str] = ..., action: _Optional[_Union[ReplayObserverRequest.Action, str]] = ..., below_version: _Optional[int] = ...) -> None: ...

class ReplayObserverResponse(_message.Message):
    __slots__ = ["error", "rows", "state"]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    error: str
    rows: int
    state: str
    def __init__(self, state: _Optional[str] = ..., rows: _Optional[int] = ..., error: _Optional[str] = ...) -> None: ...

class RetireRequest(_message.Message):
    __slots__ = ["worker"]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    worker: str
    def __init__(self, worker: _Optional[str] = ...) -> None: ...

class RetireResponse(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class RollbackRequest(_message.Message):
    __slots__ = ["session"]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    session: str
    def __init__(self, session: _Optional[str] = ...) -> None: ...

class RollbackResponse(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class RowPriority(_message.Message):
    __slots__ = ["prefix", "prefix_bytes", "priority"]
    PREFIX_BYTES_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    prefix: str
    prefix_bytes: bytes
    priority: int
    def __init__(self, prefix: _Optional[str] = ..., prefix_bytes: _Optional[bytes] = ..., priority: _Optional[int] = ...) -> None: ...

class RowRange(_message.Message):
    __slots__ = ["before", "before_bytes", "columns", "columns_bytes", "from_bytes", "prefix", "prefix_bytes", "table"]
    BEFORE_BYTES_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_BYTES_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    FROM_BYTES_FIELD_NUMBER: _ClassVar[int]
    FROM_FIELD_NUMBER: _ClassVar[int]
    PREFIX_BYTES_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    before: str
    before_bytes: bytes
    columns: _containers.RepeatedScalarFieldContainer[str]
    columns_bytes: _containers.RepeatedScalarFieldContainer[bytes]
    from_bytes: bytes
    prefix: str
    prefix_bytes: bytes
    table: str
    def __init__(self, table: _Optional[str] = ..., from_bytes: _Optional[bytes] = ..., before: _Optional[str] = ..., before_bytes: _Optional[bytes] = ..., prefix: _Optional[str] = ..., prefix_bytes: _Optional[bytes] = ..., columns: _Optional[_Iterable[str]] = ..., columns_bytes: _Optional[_Iterable[bytes]] = ..., **kwargs) -> None: ...

class Run(_message.Message):
    __slots__ = ["changes", "deadline_ms", "observer", "session", "start_timestamp"]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    OBSERVER_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    START_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    changes: _containers.RepeatedCompositeFieldContainer[ObservedChange]
    deadline_ms: int
    observer: str
    session: str
    start_timestamp: int
    def __init__(self, session: _Optional[str] = ..., observer: _Optional[str] = ..., start_timestamp: _Optional[int] = ..., deadline_ms: _Optional[int] = ..., changes: _Optional[_Iterable[_Union[ObservedChange, _Mapping]]] = ...) -> None: ...

class RunFailure(_message.Message):
    __slots__ = ["kind", "message", "retry_after_ms"]
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = []
    KIND_FIELD_NUMBER: _ClassVar[int]
    KIND_RETRY_AFTER: RunFailure.Kind
    KIND_UNAVAILABLE: RunFailure.Kind
    KIND_UNSPECIFIED: RunFailure.Kind
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    kind: RunFailure.Kind
    message: str
    retry_after_ms: int
    def __init__(self, message: _Optional[str] = ..., kind: _Optional[_Union[RunFailure.Kind, str]] = ..., retry_after_ms: _Optional[int] = ...) -> None: ...

class ScanRequest(_message.Message):
    __slots__ = ["encoding", "keys_only", "limit", "page_cells", "page_token", "range", "reverse", "session", "timestamp"]
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    KEYS_ONLY_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    PAGE_CELLS_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    RANGE_FIELD_NUMBER: _ClassVar[int]
    REVERSE_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    encoding: Encoding
    keys_only: bool
    limit: int
    page_cells: int
    page_token: str
    range: RowRange
    reverse: bool
    session: str
    timestamp: int
    def __init__(self, range: _Optional[_Union[RowRange, _Mapping]] = ..., limit: _Optional[int] = ..., reverse: bool = ..., keys_only: bool = ..., timestamp: _Optional[int] = ..., session: _Optional[str] = ..., page_token: _Optional[str] = ..., page_cells: _Optional[int] = ..., encoding: _Optional[_Union[Encoding, str]] = ...) -> None: ...

class ScanResponse(_message.Message):
    __slots__ = ["cells", "page_token", "timestamp"]
    CELLS_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    cells: _containers.RepeatedCompositeFieldContainer[Cell]
    page_token: str
    timestamp: int
    def __init__(self, cells: _Optional[_Iterable[_Union[Cell, _Mapping]]] = ..., timestamp: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class SetExpiryRequest(_message.Message):
    __slots__ = ["expiry", "table"]
    EXPIRY_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    expiry: Expiry
    table: str
    def __init__(self, table: _Optional[str] = ..., expiry: _Optional[_Union[Expiry, _Mapping]] = ...) -> None: ...

class SetExpiryResponse(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class SplitTabletRequest(_message.Message):
    __slots__ = ["row", "row_bytes", "table"]
    ROW_BYTES_FIELD_NUMBER: _ClassVar[int]
    ROW_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    row: str
    row_bytes: bytes
    table: str
    def __init__(self, table: _Optional[str] = ..., row: _Optional[str] = ..., row_bytes: _Optional[bytes] = ...) -> None: ...

class SplitTabletResponse(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class TableSpec(_message.Message):
    __slots__ = ["expiry", "name", "split_keys", "split_keys_bytes"]
    EXPIRY_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SPLIT_KEYS_BYTES_FIELD_NUMBER: _ClassVar[int]
    SPLIT_KEYS_FIELD_NUMBER: _ClassVar[int]
    expiry: Expiry
    name: str
    split_keys: _containers.RepeatedScalarFieldContainer[str]
    split_keys_bytes: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, name: _Optional[str] = ..., split_keys: _Optional[_Iterable[str]] = ..., split_keys_bytes: _Optional[_Iterable[bytes]] = ..., expiry: _Optional[_Union[Expiry, _Mapping]] = ...) -> None: ...

class TransactRequest(_message.Message):
    __slots__ = ["conditions", "deletes", "encoding", "idempotency_key", "locks", "max_retries", "name", "notifications", "reads", "validates", "writes"]
    CONDITIONS_FIELD_NUMBER: _ClassVar[int]
    DELETES_FIELD_NUMBER: _ClassVar[int]
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    LOCKS_FIELD_NUMBER: _ClassVar[int]
    MAX_RETRIES_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    NOTIFICATIONS_FIELD_NUMBER: _ClassVar[int]
    READS_FIELD_NUMBER: _ClassVar[int]
    VALIDATES_FIELD_NUMBER: _ClassVar[int]
    WRITES_FIELD_NUMBER: _ClassVar[int]
    conditions: _containers.RepeatedCompositeFieldContainer[Condition]
    deletes: _containers.RepeatedCompositeFieldContainer[Key]
    encoding: Encoding
    idempotency_key: str
    locks: _containers.RepeatedCompositeFieldContainer[Key]
    max_retries: int
    name: str
    notifications: _containers.RepeatedCompositeFieldContainer[Key]
    reads: _containers.RepeatedCompositeFieldContainer[Key]
    validates: _containers.RepeatedCompositeFieldContainer[Key]
    writes: _containers.RepeatedCompositeFieldContainer[CellWrite]
    def __init__(self, reads: _Optional[_Iterable[_Union[Key, _Mapping]]] = ..., conditions: _Optional[_Iterable[_Union[Condition, _Mapping]]] = ..., writes: _Optional[_Iterable[_Union[CellWrite, _Mapping]]] = ..., deletes: _Optional[_Iterable[_Union[Key, _Mapping]]] = ..., notifications: _Optional[_Iterable[_Union[Key, _Mapping]]] = ..., locks: _Optional[_Iterable[_Union[Key, _Mapping]]] = ..., validates: _Optional[_Iterable[_Union[Key, _Mapping]]] = ..., idempotency_key: _Optional[str] = ..., name: _Optional[str] = ..., max_retries: _Optional[int] = ..., encoding: _Optional[_Union[Encoding, str]] = ...) -> None: ...

class TransactResponse(_message.Message):
    __slots__ = ["cells", "commit_timestamp", "committed", "failed_conditions", "repeated", "start_timestamp"]
    CELLS_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    COMMIT_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    FAILED_CONDITIONS_FIELD_NUMBER: _ClassVar[int]
    REPEATED_FIELD_NUMBER: _ClassVar[int]
    START_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    cells: _containers.RepeatedCompositeFieldContainer[Cell]
    commit_timestamp: int
    committed: bool
    failed_conditions: _containers.RepeatedScalarFieldContainer[int]
    repeated: bool
    start_timestamp: int
    def __init__(self, committed: bool = ..., failed_conditions: _Optional[_Iterable[int]] = ..., cells: _Optional[_Iterable[_Union[Cell, _Mapping]]] = ..., start_timestamp: _Optional[int] = ..., commit_timestamp: _Optional[int] = ..., repeated: bool = ...) -> None: ...

class WaitForRequest(_message.Message):
    __slots__ = ["timestamp"]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    timestamp: int
    def __init__(self, timestamp: _Optional[int] = ...) -> None: ...

class WaitForResponse(_message.Message):
    __slots__ = ["pending"]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    pending: _containers.RepeatedCompositeFieldContainer[ObserverPending]
    def __init__(self, pending: _Optional[_Iterable[_Union[ObserverPending, _Mapping]]] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ["after", "encoding", "initial", "ranges", "subscriber"]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    INITIAL_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBER_FIELD_NUMBER: _ClassVar[int]
    after: int
    encoding: Encoding
    initial: bool
    ranges: _containers.RepeatedCompositeFieldContainer[RowRange]
    subscriber: str
    def __init__(self, ranges: _Optional[_Iterable[_Union[RowRange, _Mapping]]] = ..., after: _Optional[int] = ..., initial: bool = ..., subscriber: _Optional[str] = ..., encoding: _Optional[_Union[Encoding, str]] = ...) -> None: ...

class WatchResponse(_message.Message):
    __slots__ = ["changes", "resolved_timestamp"]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    RESOLVED_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    changes: _containers.RepeatedCompositeFieldContainer[Change]
    resolved_timestamp: int
    def __init__(self, changes: _Optional[_Iterable[_Union[Change, _Mapping]]] = ..., resolved_timestamp: _Optional[int] = ...) -> None: ...

class WorkerStarted(_message.Message):
    __slots__ = ["lease_ms", "node_id", "worker"]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    lease_ms: int
    node_id: int
    worker: str
    def __init__(self, worker: _Optional[str] = ..., lease_ms: _Optional[int] = ..., node_id: _Optional[int] = ...) -> None: ...

class WriteRequest(_message.Message):
    __slots__ = ["deletes", "locks", "notifications", "session", "validates", "writes"]
    DELETES_FIELD_NUMBER: _ClassVar[int]
    LOCKS_FIELD_NUMBER: _ClassVar[int]
    NOTIFICATIONS_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    VALIDATES_FIELD_NUMBER: _ClassVar[int]
    WRITES_FIELD_NUMBER: _ClassVar[int]
    deletes: _containers.RepeatedCompositeFieldContainer[Key]
    locks: _containers.RepeatedCompositeFieldContainer[Key]
    notifications: _containers.RepeatedCompositeFieldContainer[Key]
    session: str
    validates: _containers.RepeatedCompositeFieldContainer[Key]
    writes: _containers.RepeatedCompositeFieldContainer[CellWrite]
    def __init__(self, session: _Optional[str] = ..., writes: _Optional[_Iterable[_Union[CellWrite, _Mapping]]] = ..., deletes: _Optional[_Iterable[_Union[Key, _Mapping]]] = ..., notifications: _Optional[_Iterable[_Union[Key, _Mapping]]] = ..., locks: _Optional[_Iterable[_Union[Key, _Mapping]]] = ..., validates: _Optional[_Iterable[_Union[Key, _Mapping]]] = ...) -> None: ...

class WriteResponse(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class Encoding(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
