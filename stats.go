package percolator

import "github.com/percolator-go/percolator/internal/txn"

// Stats are a client's counters since it began.
type Stats struct {
	Begun      uint64 // transactions begun, with the repeated runs of Transact
	OnePhase   uint64 // committed in one phase
	TwoPhase   uint64 // committed in two phases
	NotifyOnly uint64 // commits of weak notifications alone
	ReadOnly   uint64 // commits with nothing to write
	Conflicts  uint64 // runs that ended by a conflict
	Locked     uint64 // runs given up because of a live lock
	Unknown    uint64 // commits whose outcome stayed unknown
	Settled    uint64 // commits settled by a rollback at the primary: lost replies, or given up
	Retries    uint64 // runs of Transact after the first
	RolledBack uint64 // failed prewrites rolled back
	Heartbeats uint64
	Leases     uint64 // requests to hold history for open snapshots
	// background commits of secondaries that failed and were left for resolution
	Secondaries  uint64
	InBackground uint64 // commits and rollbacks going on in the background now

	Timestamps        uint64 // received
	TimestampRequests uint64
	TimestampsRefused uint64 // answers that were not above all seen

	Reads          uint64 // messages that read cells
	ReadCells      uint64 // cells asked for by them
	CacheHits      uint64 // reads answered by the transaction's cache
	ScanPages      uint64
	PrefetchAsked  uint64 // cells asked for in advance
	PrefetchUsed   uint64 // of those, how many were read later: used/asked is the hit rate
	PrefetchLocked uint64 // of those, how many were locked, hence not kept

	LocksMet      uint64 // locks that stood in the way
	StatusChecks  uint64 // questions to a primary
	RolledForward uint64 // locks of committed transactions resolved
	RolledBackIn  uint64 // locks of dead transactions resolved

	MapMisses   uint64 // questions to meta for the tablet map
	WrongTablet uint64 // answers that healed the map

	ByName map[string]NameStats // of transactions with the option Name
}

// NameStats are the counters of the transactions of one name. Its fields are
//
//	Begun     uint64  // the repeated runs of Transact too
//	Committed uint64
//	Conflicts uint64  // ended by a conflict or a live lock
//	Failed    uint64  // ended by any other error of a commit
//	Seconds   float64 // how long those that ended took, all together
type NameStats = txn.NameStats

// Stats returns the client's counters since it began.
func (db *DB) Stats() Stats { return Stats(db.c.Stats()) }
