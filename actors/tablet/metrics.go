package tablet

import (
	"sync/atomic"

	"github.com/percolator-go/percolator/internal/metrics"
)

// Metrics are what all replicas of a node measure together. The zero value is empty. Tablets
// observe in their turns, read workers beside them; anybody may read.
type Metrics struct {
	Batches metrics.Sizes     // operations taken from a mailbox together
	Waits   metrics.Durations // in a mailbox
	Entries metrics.Sizes     // mutations that share an entry of Raft's log
	Writes  metrics.Durations // from an entry's proposal until its effects are visible
	Reads   metrics.Durations // of the reads of a batch together, once their index is visible
	// Contended are the rows where transactions stood in each other's way most.
	Contended Contended
	Led       atomic.Uint64 // how often a replica has come to lead
}
