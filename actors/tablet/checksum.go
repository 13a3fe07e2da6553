package tablet

import (
	"log/slog"
	"sync"

	"github.com/percolator-go/percolator/actors/tablet/snapshot"
	"github.com/percolator-go/percolator/actors/tablet/writers"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/store"
)

// Replicas are compared by a checksum of their whole range as of one log entry. All effects
// are replicated, including those of the collection of history, so the checksums that the
// replicas compute must be equal. The tablet's turn proposes the entry and marks its write
// as a fence; the state actor calls begin, which opens the Snap; a worker of the node reads
// it. At most maxChecksumJobs are queued; the rest are not computed.

const (
	maxChecksumJobs    = 16 // queued; each holds a Snap open
	keptChecksums      = 4  // results per tablet
	maxChecksumTablets = 1 << 10
)

// Checksums computes the checksums of all of a node's tablets, one at a time, and keeps
// the latest results in memory.
type Checksums struct {
	store *store.Store
	jobs  chan *checksumJob
	done  sync.WaitGroup
	log   *slog.Logger

	mu      sync.Mutex
	closed  bool
	results map[uint64][]*pb.ChecksumResponse // by tablet, oldest first
	pending map[checksumName]bool             // queued or running
}

type checksumName struct{ tablet, id uint64 }

// checksumJob is one checksum to compute, on the Snap opened at its entry. The worker
// closes the Snap.
type checksumJob struct {
	tablet, id, index uint64
	rows              store.Rows
	snap              *store.Snap
}

// NewChecksums starts the worker; Close joins it.
func NewChecksums(st *store.Store, logger *slog.Logger) *Checksums {
	c := &Checksums{store: st, log: logger, jobs: make(chan *checksumJob, maxChecksumJobs),
		results: map[uint64][]*pb.ChecksumResponse{},
		pending: map[checksumName]bool{}}
	c.done.Go(func() {
		for j := range c.jobs {
			c.run(j)
		}
	})
	return c
}

// Close stops the worker once the queued jobs are done. The state actor must have stopped,
// since only it calls begin.
func (c *Checksums) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	close(c.jobs)
	c.done.Wait()
}

// begin opens a Snap that shows the job's entry and nothing later, and queues the job. It
// runs on the state actor's goroutine and never blocks: if the queue is full, it drops the
// job, and the comparison finds no result.
func (c *Checksums) begin(j *checksumJob) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || len(c.jobs) == cap(c.jobs) {
		return
	}
	c.pending[checksumName{j.tablet, j.id}] = true
	j.snap = c.store.SnapWithLocks()
	c.jobs <- j // cannot block: begin is the only sender
}

// run computes one checksum on the worker and keeps the result, or logs the error.
func (c *Checksums) run(j *checksumJob) {
	defer j.snap.Close()
	var hash snapshot.Sum
	n := uint64(0)
	err := j.snap.Cursor(j.rows).Each(func(key, value []byte) bool {
		hash.Add(key, value)
		n++
		return true
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pending, checksumName{j.tablet, j.id})
	if err != nil {
		c.log.Error("a tablet's checksum could not be computed", "tablet", j.tablet, "error", err)
		return
	}
	// Results are only needed for a comparison in progress, so instead of tracking use, clear
	// all of them once there are results of this many tablets.
	if len(c.results) >= maxChecksumTablets {
		clear(c.results)
	}
	kept := c.results[j.tablet]
	kept = append(kept, &pb.ChecksumResponse{
		Id: j.id, Done: true, Checksum: hash.Sum64(), Index: j.index, Entries: n,
	})
	c.results[j.tablet] = kept[max(0, len(kept)-keptChecksums):]
}

// result returns the tablet's checksum with that id if it is available, or else reports
// whether it is being computed. applied is the last visible entry. A nil Checksums has no
// results.
//
// A checksum is queued before its entry counts as visible. So a replica whose visible entry
// is past it, and that is not computing it, will never have the result: a snapshot has
// skipped the entry, the replica has restarted since, the queue was full, the store could not be
// read, or newer results have replaced it.
func (c *Checksums) result(tablet, id, applied uint64) *pb.ChecksumResponse {
	out := &pb.ChecksumResponse{Id: id, Applied: applied}
	if c == nil {
		return out
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.results[tablet] {
		if r.Id == id {
			out.Done, out.Checksum, out.Index, out.Entries = true, r.Checksum, r.Index, r.Entries
			return out
		}
	}
	out.Computing = c.pending[checksumName{tablet, id}]
	return out
}

func checksumResponse(c *pb.ChecksumResponse) *pb.TabletResponse {
	return &pb.TabletResponse{Result: &pb.TabletResponse_Checksum{Checksum: c}}
}

// beginChecksum proposes that every replica compute its checksum at one log position. The
// response contains the checksum's id, which combines the term and the proposal's number
// and so is unique.
func (e *evaluation) beginChecksum(call *Call) {
	own := e.newProposal()
	own.command.Checksum = e.group.Term()<<32 | own.number&(1<<32-1)
	own.answer(call, checksumResponse(&pb.ChecksumResponse{Id: own.command.Checksum}))
	e.ownEntry(own)
}

// fence makes the write the last of its commit, so that the Snap opened after it is as of
// its entry. The response to the caller contains the entry's index.
func (c *Checksums) fence(w *writers.Write, a *applied, d *pb.TabletDescriptor) {
	if a.proposal != nil {
		for _, r := range a.proposal.replies {
			if c := r.response.GetChecksum(); c != nil {
				c.Index = a.index
			}
		}
	}
	if c == nil {
		return
	}
	job := &checksumJob{tablet: d.TabletId, id: a.change.checksum, index: a.index, rows: snapshot.Rows(d)}
	done := w.Done
	w.Fence = true
	w.Done = func(err error) {
		if err == nil {
			c.begin(job)
		}
		done(err)
	}
}
