package percolator

// Stats are the counters of a client since it was opened.
type Stats struct {
	Begun      uint64 // transactions begun, including the retries of Transact
	OnePhase   uint64 // committed in one phase
	TwoPhase   uint64 // committed in two phases, asynchronous commits included
	NotifyOnly uint64 // commits of weak notifications only
	ReadOnly   uint64 // commits without writes
	Conflicts  uint64 // runs that ended with a conflict
	Locked     uint64 // runs that ended because of a live lock
	Unknown    uint64 // commits with an unknown outcome
	Settled    uint64 // commits without a clear reply, which a rollback at the primary then decided
	Retries    uint64 // runs of Transact after the first
	RolledBack uint64 // rollbacks of failed prewrites
	Heartbeats uint64
	Leases     uint64 // requests to take or renew a lease that retains history, as for open snapshots
	// Secondaries is the number of committed transactions whose secondaries could not all be committed
	// in the background; the remaining locks are left to lock resolution.
	Secondaries  uint64
	InBackground uint64 // commits and rollbacks now running in the background

	Timestamps        uint64 // received
	TimestampRequests uint64
	TimestampsRefused uint64 // responses refused because they are not above all earlier timestamps

	Reads          uint64 // read messages
	ReadCells      uint64 // cells requested in read messages
	CacheHits      uint64 // reads served by the transaction's cache
	ScanPages      uint64
	PrefetchAsked  uint64 // cells prefetched
	PrefetchUsed   uint64 // prefetched cells that were read later; used/asked is the hit rate
	PrefetchLocked uint64 // prefetched cells discarded because they were locked

	WrittenCells uint64 // cells that committed transactions have set or deleted
	WrittenBytes uint64 // bytes of their rows, columns and values

	LocksMet      uint64 // locks that blocked a read or a commit
	StatusChecks  uint64 // requests for the status of a primary
	RolledForward uint64 // encountered locks of committed transactions whose commit was requested
	RolledBackIn  uint64 // encountered locks of dead transactions whose rollback was requested

	MapMisses   uint64 // requests to meta for the tablet map
	WrongTablet uint64 // responses that corrected the tablet map

	Messages map[string]uint64 // to tablets, by operation

	ByName map[string]NameStats // by the option Name
}

// NameStats are the counters of the transactions of one name.
type NameStats = struct {
	Begun     uint64 // including the retries of Transact
	Committed uint64
	Conflicts uint64  // ended with a conflict or a live lock
	Failed    uint64  // ended with another error of the commit
	Seconds   float64 // total duration of the ended ones
}

// Stats returns the counters of the client since it was opened.
func (db *DB) Stats() Stats { return Stats(db.c.Stats()) }
