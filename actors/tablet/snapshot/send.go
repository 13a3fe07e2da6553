package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/percolator-go/percolator/actors/tablet/group"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// Sending of snapshots. A tablet's turn queues a job; atOnce workers of the node execute
// jobs, each of which reads a Snap of the store and sends piece after piece to the
// receiving node, one under way at a time. The tablet's actor is not involved; it is
// notified of the end. maxJobs limits the queue, rate the bytes per second.

const (
	defaultRate   = 64 << 20
	defaultAtOnce = 2
	defaultPiece  = 1 << 20

	maxJobs = 64
	tries   = 3                // attempts to send a piece that gets no answer
	wait    = 30 * time.Second // timeout of the answer to a piece
	// installGrowth multiplies the timeout of the last piece each time it expires, up to 8 minutes:
	// the receiver answers this piece once the snapshot is installed. The first timeout is short,
	// because the piece or its answer may be lost, and the receiver drops a snapshot whose sender
	// is silent. A receiver that is installing also answers the repetitions.
	installGrowth = 4
	// pause is the time after which the failure of a snapshot is reported, to delay the next
	// attempt.
	pause = time.Second
)

// ErrRefused is wrapped by the outcome of a snapshot that its receiver refuses.
var ErrRefused = errors.New("snapshot: refused")

var (
	errClosed    = errors.New("snapshot: sender is closed")
	errNoAnswer  = errors.New("snapshot: no answer to a piece")
	errOddAnswer = errors.New("snapshot: answer to another piece")
)

// Ask sends a piece to a node. It calls the callback then once, on any goroutine; neither may
// block. deadline limits the wait for an answer.
type Ask func(node uint64, deadline time.Time, chunk *wire.SnapshotChunk,
	then func(*wire.SnapshotAnswer, error))

// Sender sends the snapshots of all of a node's tablets: a few concurrently, limited by its
// rate, while the others wait. A snapshot that has begun is completed regardless of changes
// of the leader, since all of it is committed.
type Sender struct {
	store *store.Store
	ask   Ask
	rate  uint64
	// Bytes of keys and values in one piece; a longer entry gets a piece of its own.
	pieceBytes int
	jobs       chan *job
	stop       context.Context
	end        context.CancelFunc
	work       sync.WaitGroup

	ids, sent, failed, bytes atomic.Uint64

	mu   sync.Mutex
	next time.Time // earliest time of the next piece
}

// Stats counts since NewSender.
type Stats struct {
	Sent   uint64 // snapshots accepted, or answered as no longer needed
	Failed uint64 // snapshots refused, unanswered, unreadable or canceled
	Bytes  uint64 // bytes of the pieces sent, each counted once
}

// Stats returns the counts so far.
func (s *Sender) Stats() Stats {
	return Stats{Sent: s.sent.Load(), Failed: s.failed.Load(), Bytes: s.bytes.Load()}
}

// job is one snapshot of a tablet for one replica. The log after its index is needed until
// the end. done is called once, on a worker's goroutine or a timer's.
type job struct {
	group.Snapshot
	tablet uint64
	done   func(error)
}

// NewSender starts the workers; Close joins them. rate is the total limit in bytes per second,
// atOnce the number of concurrent snapshots; 0 means the default.
func NewSender(st *store.Store, ask Ask, rate uint64, atOnce int) *Sender {
	s := &Sender{
		store: st, ask: ask, rate: cmp.Or(rate, defaultRate), pieceBytes: defaultPiece,
		jobs: make(chan *job, maxJobs),
	}
	s.stop, s.end = context.WithCancel(context.Background())
	for range cmp.Or(atOnce, defaultAtOnce) {
		s.work.Go(s.worker)
	}
	return s
}

// Close cancels running snapshots and joins the workers. The tablets must have stopped.
func (s *Sender) Close() {
	s.end()
	s.work.Wait()
}

// Send queues a snapshot of the tablet. It returns false if the queue is full; otherwise it
// calls done once with the outcome, on any goroutine, unless Close is called before a worker begins
// the snapshot. It does not block.
func (s *Sender) Send(tablet uint64, what group.Snapshot, done func(error)) bool {
	select {
	case s.jobs <- &job{Snapshot: what, tablet: tablet, done: done}:
		return true
	default:
		return false
	}
}

// worker sends one snapshot after another until Close. A failed one is reported after a
// pause, on a timer's goroutine, so that the worker is free.
func (s *Sender) worker() {
	for {
		select {
		case <-s.stop.Done():
			return
		case j := <-s.jobs:
			if err := s.run(j); err != nil {
				s.failed.Add(1)
				time.AfterFunc(pause, func() { j.done(err) })
				continue
			}
			s.sent.Add(1)
			j.done(nil)
		}
	}
}

// run sends one snapshot, and closes its Snap.
func (s *Sender) run(j *job) error {
	c, err := s.capture(j)
	if err != nil {
		return err
	}
	defer c.Snap.Close()
	rows := Rows(c.State.Tablet)
	out := &outgoing{job: j, sender: s, rows: rows, cursor: c.Snap.Cursor(rows)}
	// Unique among the snapshots for this replica, of all senders.
	out.id = fmt.Sprintf("%d.%d.%d.%d", j.Message.GetFrom(), j.Message.GetTerm(), j.Index,
		s.ids.Add(1))
	header, err := c.header(j)
	if err != nil {
		return err
	}
	return out.send(header)
}

// Number and interval of retries when the addition of the replica is not visible yet: raft
// requests a snapshot as soon as it knows of the replica, some commits of the store
// earlier.
const (
	captureTries = 50
	captureAgain = 10 * time.Millisecond
)

// capture captures a snapshot whose configuration contains the replica.
func (s *Sender) capture(j *job) (*Captured, error) {
	for range captureTries {
		c, err := Capture(s.store.SnapWithLocks(), j.tablet)
		if err != nil {
			return nil, err
		}
		if inConf(c.Conf, j.To) && group.Replica(c.State.Tablet, j.To) != nil {
			return c, nil
		}
		c.Snap.Close()
		if err := s.sleep(captureAgain); err != nil {
			return nil, err
		}
	}
	return nil, ErrTooEarly
}

// sleep waits, or returns errClosed once Close was called.
func (s *Sender) sleep(d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-s.stop.Done():
		return errClosed
	}
}

// header returns the header of the first piece.
func (c *Captured) header(j *job) (*wire.SnapshotHeader, error) {
	c.State.ReplicaId = 0 // the receiver sets its own
	if c.State.Sized = nil; !c.Applied.Rough {
		c.State.Sized = &wire.Sized{Bytes: c.Applied.Bytes}
	}
	m := proto.CloneOf(j.Message)
	m.Snapshot = c.Place()
	state, err := proto.Marshal(c.State)
	message, failed := proto.Marshal(m)
	if err := errors.Join(err, failed); err != nil {
		return nil, fmt.Errorf("snapshot: encode the state of tablet %d: %w", j.tablet, err)
	}
	return &wire.SnapshotHeader{
		Message: message, State: state, Index: c.Applied.Index, Term: c.Applied.Term,
	}, nil
}

// outgoing is a snapshot whose pieces are being sent, by one worker.
type outgoing struct {
	*job
	sender *Sender
	rows   store.Rows
	cursor *store.Cursor
	total  Sum
	id     string
}

// send sends piece after piece, each after the answer to the previous one. It reads one
// piece ahead, to know which is the last.
func (o *outgoing) send(header *wire.SnapshotHeader) error {
	entries, err := o.entries()
	for sequence := uint64(0); err == nil; sequence++ {
		var next []*wire.Effect
		if len(entries) > 0 {
			if next, err = o.entries(); err != nil {
				break
			}
		}
		chunk := &wire.SnapshotChunk{
			TabletId: o.tablet, ToReplica: o.To, Id: o.id, Sequence: sequence, Header: header,
			Entries: entries, Checksum: sumOf(entries), Last: len(next) == 0,
		}
		header = nil
		o.total.addPiece(chunk.Checksum)
		if chunk.Last {
			if err = o.sender.store.VerifyRows(o.rows); err != nil {
				break // else the damage would arrive with checksums that match
			}
			chunk.Total = o.total.Sum64()
		}
		installed, failure := o.piece(chunk)
		if err = failure; err != nil || installed {
			break
		}
		entries = next
	}
	if err != nil {
		return fmt.Errorf("send a snapshot of tablet %d to replica %d on node %d: %w", o.tablet, o.To,
			o.Node, err)
	}
	return nil
}

// entries reads the next piece. It returns none at the end.
func (o *outgoing) entries() ([]*wire.Effect, error) {
	entries, err := o.cursor.Next(maxPieceEntries, o.sender.pieceBytes)
	if err != nil || len(entries) == 0 {
		return nil, err
	}
	out := make([]*wire.Effect, 0, len(entries))
	for _, e := range entries {
		out = append(out, &wire.Effect{Key: e.Key, Value: e.Value})
	}
	return out, nil
}

// piece sends one piece, and repeats it if there is no answer: a receiver that already has
// it gives the same answer. installed reports that the replica needs no more, after the
// last piece or because it has caught up by other means.
func (o *outgoing) piece(chunk *wire.SnapshotChunk) (installed bool, err error) {
	s, size, timeout := o.sender, proto.Size(chunk), wait
	if err := s.pace(size); err != nil {
		return false, err
	}
	s.bytes.Add(uint64(size))
	for range tries {
		var answer *wire.SnapshotAnswer
		asked := time.Now()
		if answer, err = s.await(o.Node, chunk, timeout); err != nil {
			if s.stop.Err() != nil {
				return false, err
			}
			if chunk.Last && time.Since(asked) >= timeout {
				timeout *= installGrowth
			}
			continue
		}
		switch {
		case answer.GetRefused() != "":
			return false, fmt.Errorf("%w: %s", ErrRefused, answer.GetRefused())
		case answer.GetInstalled():
			return true, nil
		case chunk.Last || answer.GetNext() != chunk.Sequence+1:
			return false, fmt.Errorf("%w: the receiver wants piece %d after piece %d", errOddAnswer, answer.GetNext(),
				chunk.Sequence)
		}
		return false, nil
	}
	return false, err
}

// await sends a piece once and waits for the answer, at most for timeout.
func (s *Sender) await(node uint64, chunk *wire.SnapshotChunk,
	timeout time.Duration) (*wire.SnapshotAnswer, error) {
	type result struct {
		answer *wire.SnapshotAnswer
		err    error
	}
	answered := make(chan result, 1)
	s.ask(node, time.Now().Add(timeout), chunk, func(a *wire.SnapshotAnswer, err error) {
		select {
		case answered <- result{a, err}:
		default: // a duplicate answer: the first counts
		}
	})
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case r := <-answered:
		return r.answer, r.err
	case <-timer.C:
		return nil, errNoAnswer
	case <-s.stop.Done():
		return nil, errClosed
	}
}

// pace waits until that many bytes may be sent. All workers share one schedule: each
// reserves its time and then sleeps without the lock.
func (s *Sender) pace(bytes int) error {
	s.mu.Lock()
	now := time.Now()
	at := s.next
	if at.Before(now) {
		at = now
	}
	s.next = at.Add(time.Duration(float64(bytes) / float64(s.rate) * float64(time.Second)))
	s.mu.Unlock()
	return s.sleep(at.Sub(now))
}
