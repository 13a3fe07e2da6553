//go:build !broken

package broken

// Each constant says what goes wrong where it is true; the sections are those of the
// design. In on.go the same names, in the same order, are variables.
const (
	// CollectAboveSafepoint: collection deletes what is above the safepoint as well (section
	// 4, invariant 11).
	CollectAboveSafepoint = false

	// AckOutside: the acknowledgment is written outside the observer's transaction (section
	// 7).
	AckOutside = false

	// AheadClock: time follows the clock of whichever node comes to lead meta, also one that
	// is far ahead of all others (section 6: a node whose clock is grossly ahead declines to
	// lead).
	AheadClock = false

	// AnyRole: a certificate of the authority is enough, whatever it is for (section 9).
	AnyRole = false

	// AnyToken: a lease on history is ended by whoever knows its holder's name.
	AnyToken = false

	// BitRotServed: the checksums of the store's tables are not compared (ADR 0029).
	BitRotServed = false

	// ChargeAfter: no attempt is written before a run, so one that ends its process is never
	// counted.
	ChargeAfter = false

	// CheckpointUnsynced: a checkpoint is recorded before the state is durable
	// (acknowledged means durable).
	CheckpointUnsynced = false

	// ClearAlways: notifications are cleared whatever their timestamp (invariant 12).
	ClearAlways = false

	// ConfirmReserved: a tablet confirms that all below the bound is settled while a one-
	// phase commit is in flight (section 4, invariant 11).
	ConfirmReserved = false

	// DataByKey: collection deletes a long value by its own start timestamp, not with the
	// record that names it (section 4, invariant 11).
	DataByKey = false

	// DropByName: meta drops the table that has the name when the order arrives, whichever
	// its sender saw (section 2: ids are never reused, names are).
	DropByName = false

	// DroppedDone: an operation that is past its sender's deadline is answered as surely not
	// done, and done all the same (section 5: "surely not proposed" is only said of what is
	// not).
	DroppedDone = false

	// EarlyAck: a leader acknowledges what its own log alone holds, before a quorum does
	// (section 5, answers).
	EarlyAck = false

	// EarlyAnswer: answers do not wait until what they were evaluated on is applied (section
	// 5, answers).
	EarlyAnswer = false

	// EarlyCollect: safepoints are raised without confirmation (section 4, invariant 11).
	EarlyCollect = false

	// EarlyDurable: an append to a Raft log counts as durable before the sync that makes it
	// so (section 3).
	EarlyDurable = false

	// EarlyTold: a version of the catalogue is noted as known to every tablet before it is
	// (section 7).
	EarlyTold = false

	// EarlyTxn: a read opens its Badger Txn before it captures the lock view (section 5,
	// reads).
	EarlyTxn = false

	// ExportEarlyAck: the web index's exporter acknowledges before the full-text index is
	// durable (examples/webindex/export).
	ExportEarlyAck = false

	// ForgedAcks: a client may write observers' acknowledgments.
	ForgedAcks = false

	// ForgetAttempts: how often a run has failed is not kept in its notification (design
	// section 7).
	ForgetAttempts = false

	// ForgetCommit: a commit index that was learnt before an entry came is not in the log with it
	// (section 5).
	ForgetCommit = false

	// ForgetRollback: a leader takes a transaction for never rolled back that it has rolled
	// back itself (section 4, invariant 5).
	ForgetRollback = false

	// FullDiskAck: a write that the disk had no room for counts as done (section 10).
	FullDiskAck = false

	// GrantUnchecked: a one-phase commit goes on when its timestamp comes, whatever has
	// become of the leadership and of its reservation since (section 5, one-phase commit).
	GrantUnchecked = false

	// IgnoreHolds: history is collected whatever leases there are (section 4, invariant 11).
	IgnoreHolds = false

	// IgnoreLocksOnRead: reads answer past locks (invariant 1).
	IgnoreLocksOnRead = false

	// InstallWithoutMarker: a snapshot is installed without the durable marker that has an
	// installation that a crash cut short begun anew (design section 5).
	InstallWithoutMarker = false

	// KeepMemory: an oracle that leads again goes on from what it remembers of the term that
	// it had lost (section 6).
	KeepMemory = false

	// LateConfirmation: a batch of the oracle is served by a confirmation that was asked for
	// before it was closed, for one that a panic has ended (section 6).
	LateConfirmation = false

	// LateStart: the tablet takes the timestamp of a first read after it has captured what
	// the read is answered from (invariant 10 of section 4).
	LateStart = false

	// LoadGap: a load counts lines as committed although lines before them are not.
	LoadGap = false

	// LocalExpiry: a lock has expired when this machine's clock says so, not the oracle's
	// (invariant 6 of design section 4).
	LocalExpiry = false

	// LogBitRot: damage in the Raft log is taken for its end, and a damaged entry is read (ADR
	// 0028).
	LogBitRot = false

	// LogEarlyFree: segments of the Raft log go before the state they brought about is
	// durable.
	LogEarlyFree = false

	// LogForgetHardState: a HardState goes with the segment that it was written to.
	LogForgetHardState = false

	// LogGap: a replica's write goes in although one before it was refused for good (section
	// 3).
	LogGap = false

	// LogNoSync: the Raft log is never synced (acknowledged means durable).
	LogNoSync = false

	// LogStaleFrame: what an earlier use of a segment left behind is taken for the log's.
	LogStaleFrame = false

	// LogTornFrame: a frame of the Raft log that was cut short is taken for whole.
	LogTornFrame = false

	// LoneJudged: a term in which the oracle was beside the only voter counts as judged,
	// whoever votes later (section 6).
	LoneJudged = false

	// LostNotSent: a request that was on its way when its node went is said to have not been
	// sent (invariant 8).
	LostNotSent = false

	// MoveUnfenced: placement changes a tablet's replicas whatever has become of the
	// descriptor that the change was planned from (invariant 1 of actors/placement).
	MoveUnfenced = false

	// NoReadIndex: a read is answered without asking the other replicas whether this one
	// still leads (section 5, reads).
	NoReadIndex = false

	// NoRollbackRecord: a rollback leaves no record (invariant 4).
	NoRollbackRecord = false

	// NoSync: nothing is ever synced (section 3; acknowledged means durable).
	NoSync = false

	// OldCopy: a directory that was restored from an old copy registers as soon as its
	// incarnation, which grows with each start, is that of the last registration (invariant
	// 7 of package meta).
	OldCopy = false

	// PromiseTwice: a fresh node lets a second one found the cluster although it has
	// promised that to another (package join).
	PromiseTwice = false

	// ReplayFromApplied: after a crash entries are applied from where the state says that
	// it is, not from the checkpoint (acknowledged means durable).
	ReplayFromApplied = false

	// RerunUnknown: a commit whose outcome is unknown is run again (invariant 8 of section
	// 4).
	RerunUnknown = false

	// ReuseTimestamps: an oracle that takes over begins at its own clock, not above the
	// persisted mark (section 6).
	ReuseTimestamps = false

	// SecondaryFirst: secondaries are committed before the primary (invariant 3).
	SecondaryFirst = false

	// SilenceIsDeath: an incarnation that gossip does not know to be alive counts as dead,
	// also if it was never seen to die (section 4, invariant 7).
	SilenceIsDeath = false

	// SkipConflictCheck: prewrite ignores newer write records (invariant 2).
	SkipConflictCheck = false

	// SnapshotBitRot: a piece of a snapshot that has changed on its way is taken.
	SnapshotBitRot = false

	// SnapshotWithoutLocks: the lock group is left out of snapshots (design section 5: a
	// snapshot holds every group).
	SnapshotWithoutLocks = false

	// SplitAppliedIndex: the applied index is written in a Txn of its own, after the effects
	// (section 3).
	SplitAppliedIndex = false

	// SplitLosesLocks: the right side of a split begins without the locks that it inherits
	// (section 5, split).
	SplitLosesLocks = false

	// StaleBound: a read that has waited for a worker is answered by the bound of when it
	// was taken up, whatever was collected since (section 5, reads).
	StaleBound = false

	// StaleHotCell: what a reader has found is kept in memory although it has been
	// overwritten meanwhile (section 3).
	StaleHotCell = false

	// StaleLeader: a tablet that does not lead any more does not take back what it has told
	// the oracle (section 6: leadership is confirmed for each batch).
	StaleLeader = false

	// SweepOwnTargets: the sweeper looks only after columns whose observers run in its own
	// process.
	SweepOwnTargets = false

	// ReadUncommittedSeq: reads are opened at a sequence whose commit has not returned
	// (section 3).
	ReadUncommittedSeq = false

	// TrustSurvey: scanners never walk a tablet while the survey says that it has nothing
	// for observers.
	TrustSurvey = false

	// UnappliedLead: a new leader captures what reads see before the entries that earlier
	// leaders have acknowledged are applied (section 5, reads).
	UnappliedLead = false

	// UnboundedLead: the oracle gives out as many timestamps as it is asked for, however far
	// they are ahead of physical time (section 6).
	UnboundedLead = false

	// Unconfirmed: the oracle gives timestamps out of its memory at once without looking
	// whether its node still leads (section 6: leadership is confirmed for each batch).
	Unconfirmed = false

	// UnconfirmedStart: a node that comes back votes before others have confirmed that its
	// directory is no old copy (section 10).
	UnconfirmedStart = false

	// UncountedAnswers: what an answer takes is given back when gRPC has it, not when its
	// client has read it.
	UncountedAnswers = false

	// UncountedCalls: a connection may have any number of calls under way, each with a
	// message that is not whole or an answer that is not read.
	UncountedCalls = false

	// Unguarded: what reaches the remoting is not looked at before the library gets it
	// (section 9).
	Unguarded = false

	// UnsharedLeases: one client may take all leases on history.
	UnsharedLeases = false

	// WelcomeForgotten: the directory of a node that was forgotten is let in again, with its
	// old promises.
	WelcomeForgotten = false
)
