package tablet

import (
	"sync/atomic"

	"github.com/percolator-go/percolator/actors/tablet/reads"
	"github.com/percolator-go/percolator/internal/metrics"
)

// Metrics are the measurements shared by all replicas of a node. The zero value is empty.
// It is safe for concurrent use.
type Metrics struct {
	Batches metrics.Sizes     // operations per batch
	Waits   metrics.Durations // time of a batch's marker in the mailbox
	Entries metrics.Sizes     // operations that wait for a Raft entry when it is proposed
	Writes  metrics.Durations // time from an entry's proposal until its effects are visible
	Reads   metrics.Durations // time in which a read worker answers the reads of one job
	Feed    reads.Feed
	// Contended are the rows with the most mutations refused because of conflicts or locks.
	Contended Contended
	Led       atomic.Uint64 // times that a replica became leader
	// LeaseReads and QuorumReads are the batches of reads whose index a leader among several voters
	// knew by its lease, and those for which it asked the other voters.
	LeaseReads, QuorumReads atomic.Uint64
}
