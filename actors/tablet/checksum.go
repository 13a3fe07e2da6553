package tablet

import (
	"log/slog"
	"sync"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/store"
)

// Replicas are compared by the checksum of everything that their ranges hold as of one
// entry of the log, which each of them computes by itself: the effects are replicated,
// the collection of history among them, so the checksums must be equal.

const (
	maxChecksumJobs    = 16 // that wait: each holds a Snap open
	keptChecksums      = 4  // results of one tablet
	maxChecksumTablets = 1 << 10
)

// Checksums computes the checksums of all of a node's tablets, one at a time, and keeps
// the last results in memory.
type Checksums struct {
	store *store.Store
	jobs  chan *checksumJob
	done  sync.WaitGroup
	log   *slog.Logger

	mu      sync.Mutex
	closed  bool
	results map[uint64][]*pb.ChecksumResponse // by tablet, oldest first
	pending map[checksumName]bool             // begun and not done
}

type checksumName struct{ tablet, id uint64 }

// checksumJob is one checksum to be computed, with the Snap that was taken at its entry.
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

// Close ends the worker after the jobs that wait. The state actor must have stopped.
func (c *Checksums) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	close(c.jobs)
	c.done.Wait()
}

// begin takes the Snap of what is visible now, which is the job's entry and nothing
// later. What does not fit is not computed: whoever compares finds that there is no
// result.
func (c *Checksums) begin(j *checksumJob) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || len(c.jobs) == cap(c.jobs) {
		return
	}
	c.pending[checksumName{j.tablet, j.id}] = true
	j.snap = c.store.Snap()
	c.jobs <- j // only begin fills it
}

func (c *Checksums) run(j *checksumJob) {
	defer j.snap.Close()
	hash, n := newSum(), uint64(0)
	err := j.snap.Cursor(j.rows).Each(func(key, value []byte) bool {
		hash.add(key, value)
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
	if len(c.results) >= maxChecksumTablets {
		clear(c.results)
	}
	kept := c.results[j.tablet]
	kept = append(kept, &pb.ChecksumResponse{
		Id: j.id, Done: true, Checksum: hash.hash.Sum64(), Index: j.index, Entries: n,
	})
	c.results[j.tablet] = kept[max(0, len(kept)-keptChecksums):]
}

// result is a checksum of the tablet, if it is known; applied is the last entry that is visible.
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

// checksum answers with this replica's result, whether or not it leads. A checksum begins
// before its entry counts as visible: a replica whose visible entry is past it, and that
// computes nothing, never has the result: a snapshot has taken it past the entry, it was
// started anew since, or too much was to be computed.
func (t *Tablet) checksum(id uint64) *pb.TabletResponse {
	return &pb.TabletResponse{
		Result: &pb.TabletResponse_Checksum{
			Checksum: t.cfg.Checksums.result(t.id, id, t.group.Visible()),
		},
	}
}

// beginChecksum proposes that every replica computes its checksum at one place of the
// log. The answer names it: by term and number of the proposal, which no other has.
func (e *evaluation) beginChecksum(call *Call) {
	own := e.newProposal()
	own.command.Checksum = e.group.Term()<<32 | own.number&(1<<32-1)
	own.answer(call, &pb.TabletResponse{
		Result: &pb.TabletResponse_Checksum{
			Checksum: &pb.ChecksumResponse{Id: own.command.Checksum},
		},
	})
	e.ownEntry(own)
}

// fenceChecksum has the write of an entry that asks for a checksum committed with nothing
// behind it, so that the Snap that is taken then is of this entry. Whoever has asked for
// it learns which entry it is.
func (t *Tablet) fenceChecksum(w *write, a *applied) {
	if a.proposal != nil {
		for _, r := range a.proposal.replies {
			if c := r.response.GetChecksum(); c != nil {
				c.Index = a.index
			}
		}
	}
	if t.cfg.Checksums == nil {
		return
	}
	job, sums, done := &checksumJob{
		tablet: t.id, id: a.checksum, index: a.index, rows: rowsOf(t.descriptor),
	}, t.cfg.Checksums, w.done
	w.fence = true
	w.done = func(err error) {
		if err == nil {
			sums.begin(job)
		}
		done(err)
	}
}
