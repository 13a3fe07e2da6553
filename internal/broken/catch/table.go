package main

// histories is the random test of the rules against a sequential model: any seed will do, a few thousand are enough.
const histories = "^TestHistories$"

// few keeps it short.
var few = []string{"HISTORIES=5000"}

// properties names for every constant of package broken the test that notices its loss, and at which assertion.
var properties = []property{
	{tag: "skip_conflict", pkg: "internal/mvcc", test: histories, env: few, assertion: "assertion no-lost-update"},
	{tag: "ignore_locks", pkg: "internal/mvcc", test: histories, env: few, assertion: "assertion reads-equal-the-snapshot"},
	{tag: "no_rollback_record", pkg: "internal/mvcc", test: histories, env: few, assertion: "assertion outcome-of-a-prewrite-is-known"},
	{tag: "clear_always", pkg: "internal/mvcc", test: histories, env: few, assertion: "assertion notification-until-cleared"},
	{tag: "d_by_key", pkg: "internal/mvcc", test: "^TestLongValueGoesWithItsRecord$", assertion: "D-BY-KEY: .*"},
	{tag: "above_safepoint", pkg: "internal/mvcc", test: "^TestNothingAboveTheSafepointIsCollected$", assertion: "ABOVE-SAFEPOINT: .*"},
	{tag: "dropped_done", pkg: "actors/tablet", test: "^TestLateOperationsAreDropped$", assertion: "DROPPED-DONE: .*"},
	{tag: "stale_bound", pkg: "actors/tablet", test: "^TestReadOvertakenBySafepoint$", assertion: "STALE-BOUND: .*"},
	{tag: "confirm_reserved", pkg: "actors/tablet", test: "^TestConfirmWaitsForReservations$", assertion: "CONFIRM-RESERVED: .*"},
	{tag: "torn_seq", pkg: "store", test: "^TestSnapNeverTorn$", assertion: "torn batch: at sequence"},
	{tag: "stale_hot", pkg: "store", test: "^TestOldSnapLeavesNothingBehind$", assertion: "STALE-CELL: .*"},
	{tag: "unmarked_batch", pkg: "store", test: "^TestLargeBatchCutShort$", assertion: "TORN-BATCH: .*"},
	{tag: "forget_rollback", pkg: "actors/tablet", test: "^TestRolledBackStaysSo$", assertion: "ROLLED-BACK: .*"},
	{tag: "secondary_first", pkg: "internal/txn", test: "^TestSecondaryNeverFirst$", assertion: "secondary-never-first: all-or-nothing is broken"},
	{tag: "early_answer", pkg: "actors/tablet", test: "^TestAnswersWaitUntilApplied$", assertion: "ANSWER-BEFORE-APPLY: .*"},
	{tag: "early_txn", pkg: "actors/tablet", test: "^TestReadSeesLockOrWrite$", assertion: "LOST-READ: a read above the commit timestamp"},
	{tag: "late_start", pkg: "actors/tablet", test: "^TestFirstReadAsksBeforeItReads$", assertion: "LATE-START: .*"},
	{tag: "unconfirmed", pkg: "actors/oracle", test: "^TestNowOnlyConfirmed$", assertion: "UNCONFIRMED: .*"},
	{tag: "stale_leader", pkg: "actors/tablet", test: "^TestAloneTakesBack$", assertion: "STALE-LEADER: .*"},
	{tag: "reuse_timestamps", pkg: "actors/oracle", test: "^TestFailOver$", assertion: "REUSED-TIMESTAMPS: .*"},
	{tag: "keep_memory", pkg: "actors/oracle", test: "^TestMemoryGoesWithTheTerm$", assertion: "KEPT-MEMORY: .*"},
	{tag: "late_confirmation", pkg: "actors/oracle", test: "^TestConfirmationServesItsBatch$", assertion: "LATE-CONFIRMATION: .*"},
	{tag: "old_copy", pkg: "cluster", test: "^TestOldCopyIsRefused$", assertion: "OLD-COPY: .*"},
	{tag: "ahead_clock", pkg: "node", test: "^TestClockAheadDeclines$", assertion: "AHEAD-CLOCK: .*"},
	{tag: "rerun_unknown", pkg: "internal/txn", test: "^TestUnknownOutcome$", assertion: "two phases: 2 runs, .*|one phase: 2 runs, .*"},
	{tag: "local_expiry", pkg: "internal/txn", test: "^TestExpiryIsTheOraclesTime$", assertion: "LOCAL-EXPIRY: .*"},
	{tag: "grant_unchecked", pkg: "actors/tablet", test: "^TestLostGrantReleases$", assertion: "LATE-GRANT: .*"},
	{tag: "no_read_index", pkg: "actors/tablet", test: "^TestOldLeaderReadsNothing$", assertion: "STALE-READ: .*"},
	{tag: "early_ack", pkg: "actors/tablet", test: "^TestAcknowledgedByQuorum$", assertion: "EARLY-ACK: .*"},
	{tag: "unapplied_lead", pkg: "actors/tablet", test: "^TestLeaderHasAllBeforeItReads$", assertion: "UNAPPLIED-READ: .*"},
	{tag: "split_loses_locks", pkg: "actors/tablet", test: "^TestSplitKeepsDataAndLocks$", assertion: "the split lost a lock: .*"},
	{tag: "split_applied", pkg: "actors/tablet", test: "^TestAppliedIndexMatchesEffects$", assertion: "APPLIED-INDEX: .*"},
	{tag: "snapshot_without_locks", pkg: "actors/tablet", test: "^TestSnapshotHoldsEveryGroup$", assertion: "SNAPSHOT-GROUPS: .*"},
	{tag: "install_without_marker", pkg: "actors/tablet", test: "^TestInstallCutShort$", assertion: "HALF-INSTALLED: .*"},
	{tag: "ack_outside", pkg: "actors/observer", test: "^TestTwoWorkersOneChange$", assertion: "was committed [0-9]+ times, want once"},
	{tag: "forget_attempts", pkg: "actors/observer", test: "^TestAttemptsSurviveTheProcess$", assertion: "first run of the second process has attempt 0, want 1"},
	{tag: "early_collect", pkg: "actors/collector", test: "^TestNothingCollectedBeforeConfirmation$", assertion: "EARLY-COLLECT: .*"},
	{tag: "ignore_holds", pkg: "actors/collector", test: "^TestHolds$", assertion: "IGNORED-HOLD: .*"},
	{tag: "move_unfenced", pkg: "actors/placement", test: "^TestUnfenced$", assertion: "MOVE-UNFENCED: .*"},
	{tag: "drop_by_name", pkg: "cluster", test: "^TestDropSparesATableMadeAnew$", assertion: "DROP-BY-NAME: .*"},
	{tag: "promise_twice", pkg: "cluster", test: "^TestPromiseIsKept$", assertion: "TWO-PROMISES: .*"},
	{tag: "silence_is_death", pkg: "cluster/gossip", test: "^TestMembersFindEachOther$", assertion: "SILENCE-IS-DEATH: .*"},
	{tag: "export_early_ack", pkg: "examples/webindex/export", test: "^TestAcknowledgedIsDurable$", assertion: "assertion acknowledged-export-is-durable"},
	{tag: "load_gap", pkg: "internal/cli", test: "^TestProgressHasNoGaps$", assertion: "LOAD-GAP: .*"},
	{tag: "any_role", pkg: "internal/certs", test: "^TestRoles$", assertion: "ROLES: client to the remoting: server <nil>"},
	{tag: "unguarded", pkg: "cluster/remoting", test: "^TestHostileNode$", assertion: "HOSTILE: .*|the process has ended"},
	{tag: "lost_not_sent", pkg: "cluster/peer", test: "^TestFailureSaysHowFar$", assertion: "LOST-NOT-SENT: .*"},
	{tag: "no_sync", pkg: "test/crash", test: "^TestPowerLossLosesNothingAcknowledged$", assertion: "acknowledged cells of [0-9]+ transactions are gone|no such table|node did not come up|bank: the accounts hold"},
}
