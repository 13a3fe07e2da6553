package tablet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/percolator-go/percolator/actors/tablet/group"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// This file sends snapshots. A tablet's turn queues a job; AtOnce workers of the node
// take them, each reads a Snap of the store and asks the receiving node to take piece
// after piece, one under way at a time. The tablet's actor is not needed meanwhile: it
// gets a snapshotSent when all is over. What waits is limited by maxSnapshotJob, what is
// sent by Rate.

// Defaults of SnapshotConfig.
const (
	DefaultSnapshotRate     = 64 << 20 // bytes a second, of all snapshots that a node sends
	DefaultSnapshotsAtOnce  = 2
	DefaultSnapshotPiece    = 1 << 20
	DefaultSnapshotPatience = 30 * time.Second

	snapshotTries  = 3 // of a piece that gets no answer
	maxSnapshotJob = 64
	// installPatience is how much longer the last piece may take: its answer comes when
	// the snapshot is in force.
	installPatience = 10
	// snapshotPause is how long a failed snapshot keeps its place, so that the next try
	// does not come at once.
	snapshotPause = time.Second
)

// ErrSnapshotRefused is wrapped by what becomes of a snapshot that its receiver does not take.
var ErrSnapshotRefused = errors.New("tablet: snapshot refused")

var (
	errSenderClosed = errors.New("tablet: snapshots are not sent any more")
	errNoAnswer     = errors.New("tablet: no answer to a snapshot's piece")
	errOddAnswer    = errors.New("tablet: answer to another piece of the snapshot")
)

// SendChunk asks a node to take a piece. then is called once, on any goroutine, and must
// not block; nor must SendChunk. deadline is how long an answer is waited for.
type SendChunk func(node uint64, deadline time.Time, chunk *wire.SnapshotChunk,
	then func(*wire.SnapshotAnswer, error))

// SnapshotConfig is what a node allows for sending snapshots. Zero values are the defaults.
type SnapshotConfig struct {
	Rate       uint64        // bytes a second, in all
	AtOnce     int           // snapshots under way
	PieceBytes int           // of keys and values in one piece; a longer entry travels alone
	Patience   time.Duration // for the answer to a piece
	Logger     *slog.Logger
}

func (c SnapshotConfig) withDefaults() SnapshotConfig {
	if c.Rate == 0 {
		c.Rate = DefaultSnapshotRate
	}
	if c.AtOnce <= 0 {
		c.AtOnce = DefaultSnapshotsAtOnce
	}
	if c.PieceBytes <= 0 {
		c.PieceBytes = DefaultSnapshotPiece
	}
	if c.Patience <= 0 {
		c.Patience = DefaultSnapshotPatience
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// SnapshotSender sends the snapshots of all of a node's tablets: a few at once, no faster
// than its rate, while the others wait. A snapshot that has begun is sent to its end
// whoever leads meanwhile, since all that it holds is committed.
type SnapshotSender struct {
	cfg  SnapshotConfig
	ask  SendChunk
	jobs chan *snapshotJob
	stop context.Context
	end  context.CancelFunc
	work sync.WaitGroup

	sent, failed, bytes atomic.Uint64

	mu   sync.Mutex
	next time.Time // when the next piece may go
	ids  uint64
}

// SnapshotStats counts since NewSnapshotSender.
type SnapshotStats struct {
	Sent   uint64 // snapshots that a replica has taken, or answered that it needs no more
	Failed uint64 // snapshots that were refused, or that nobody answered
	Bytes  uint64 // of the pieces that were sent, each counted once
}

// Stats returns the counts so far.
func (s *SnapshotSender) Stats() SnapshotStats {
	return SnapshotStats{Sent: s.sent.Load(), Failed: s.failed.Load(), Bytes: s.bytes.Load()}
}

// snapshotJob is one snapshot for one replica. done is called once, on a worker's
// goroutine or a timer's.
type snapshotJob struct {
	store    *store.Store
	id       uint64
	to, node uint64
	message  *raftpb.Message
	index    uint64 // the log behind it is needed until the end
	done     func(error)
}

// NewSnapshotSender starts the workers; Close joins them.
func NewSnapshotSender(ask SendChunk, cfg SnapshotConfig) *SnapshotSender {
	s := &SnapshotSender{
		cfg: cfg.withDefaults(), ask: ask, jobs: make(chan *snapshotJob, maxSnapshotJob),
	}
	s.stop, s.end = context.WithCancel(context.Background())
	for range s.cfg.AtOnce {
		s.work.Go(s.worker)
	}
	return s
}

// Close cancels what is under way and joins the workers. The tablets must have stopped.
func (s *SnapshotSender) Close() {
	s.end()
	s.work.Wait()
}

// send queues the job. It reports false if too many wait. It does not block.
func (s *SnapshotSender) send(j *snapshotJob) bool {
	select {
	case s.jobs <- j:
		return true
	default:
		return false
	}
}

// worker sends one snapshot after another until Close. A failed one is reported after a
// pause, on a timer's goroutine, so that the worker is free.
func (s *SnapshotSender) worker() {
	for {
		select {
		case <-s.stop.Done():
			return
		case j := <-s.jobs:
			if err := s.run(j); err != nil {
				s.failed.Add(1)
				time.AfterFunc(snapshotPause, func() { j.done(err) })
				continue
			}
			s.sent.Add(1)
			j.done(nil)
		}
	}
}

// run sends one snapshot, and closes its Snap.
func (s *SnapshotSender) run(j *snapshotJob) error {
	c, err := s.capture(j)
	if err != nil {
		return err
	}
	defer c.snap.Close()
	rows := rowsOf(c.state.Tablet)
	out := &outgoing{
		sender: s, job: j, rows: rows, cursor: c.snap.Cursor(rows), total: newSum(), id: s.name(j),
	}
	header, err := c.header(j)
	if err != nil {
		return err
	}
	return out.send(header)
}

// How often, and after what time, the state is looked at again when the replica's being
// added is not visible in it yet: raft asks for a snapshot as soon as it knows of the
// replica, some commits of the store earlier.
const (
	captureTries = 50
	captureAgain = 10 * time.Millisecond
)

// capture captures a snapshot whose configuration has the replica.
func (s *SnapshotSender) capture(j *snapshotJob) (*captured, error) {
	for range captureTries {
		c, err := captureSnapshot(j.store, j.id)
		if err != nil {
			return nil, err
		}
		if inConf(c.conf, j.to) && group.Replica(c.state.Tablet, j.to) != nil {
			return c, nil
		}
		c.snap.Close()
		if err := s.sleep(captureAgain); err != nil {
			return nil, err
		}
	}
	return nil, ErrSnapshotTooEarly
}

// sleep waits, or returns errSenderClosed once Close was called.
func (s *SnapshotSender) sleep(d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-s.stop.Done():
		return errSenderClosed
	}
}

// name returns an id that no other snapshot for this replica has, whoever sends it.
func (s *SnapshotSender) name(j *snapshotJob) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ids++
	m := j.message
	return strconv.FormatUint(m.GetFrom(), 10) + "." + strconv.FormatUint(m.GetTerm(), 10) + "." +
		strconv.FormatUint(j.index, 10) + "." +
		strconv.FormatUint(s.ids, 10)
}

// header returns the header that travels with the first piece.
func (c *captured) header(j *snapshotJob) (*wire.SnapshotHeader, error) {
	message, err := proto.Marshal(c.message(j.message))
	if err != nil {
		return nil, fmt.Errorf("snapshot of tablet %d: %w", j.id, err)
	}
	c.state.ReplicaId = 0 // the receiver's is another
	if c.state.Sized = nil; !c.applied.Rough {
		c.state.Sized = &wire.Sized{Bytes: c.applied.Bytes}
	}
	state, err := proto.Marshal(c.state)
	if err != nil {
		return nil, fmt.Errorf("snapshot of tablet %d: %w", j.id, err)
	}
	return &wire.SnapshotHeader{
		Message: message, State: state, Index: c.applied.Index, Term: c.applied.Term,
	}, nil
}

// outgoing is a snapshot whose pieces are being sent, by one worker.
type outgoing struct {
	sender *SnapshotSender
	job    *snapshotJob
	rows   store.Rows
	cursor *store.Cursor
	total  *sum
	id     string
}

// send sends piece after piece, each after the answer to the one before. One piece is
// read ahead, to know which is the last.
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
			TabletId: o.job.id, ToReplica: o.job.to, Id: o.id, Sequence: sequence, Header: header,
			Entries:  entries,
			Checksum: sumOf(entries), Last: len(next) == 0,
		}
		header = nil
		o.total.addPiece(chunk.Checksum)
		if chunk.Last {
			if err = o.job.store.VerifyRows(o.rows); err != nil {
				break // else the receiver would have the damage with checksums of its own
			}
			chunk.Total = o.total.hash.Sum64()
		}
		installed, failure := o.piece(chunk)
		if err = failure; err != nil || installed {
			break
		}
		entries = next
	}
	if err != nil {
		return fmt.Errorf("snapshot of tablet %d for replica %d on node %d: %w", o.job.id, o.job.to,
			o.job.node, err)
	}
	return nil
}

// entries reads the next piece. It returns none at the end.
func (o *outgoing) entries() ([]*wire.Effect, error) {
	entries, err := o.cursor.Next(maxPieceEntries, o.sender.cfg.PieceBytes)
	if err != nil || len(entries) == 0 {
		return nil, err
	}
	out := make([]*wire.Effect, 0, len(entries))
	for _, e := range entries {
		out = append(out, &wire.Effect{Key: e.Key, Value: e.Value})
	}
	return out, nil
}

// piece sends one piece, and sends it again if there is no answer: a receiver that has it
// already gives the same answer. installed reports that the replica needs no more, after
// the last piece or because it has caught up by other means.
func (o *outgoing) piece(chunk *wire.SnapshotChunk) (installed bool, err error) {
	s, size := o.sender, proto.Size(chunk)
	if err := s.pace(size); err != nil {
		return false, err
	}
	s.bytes.Add(uint64(size))
	patience := s.cfg.Patience
	if chunk.Last {
		patience *= installPatience
	}
	for range snapshotTries {
		var answer *wire.SnapshotAnswer
		if answer, err = s.await(o.job.node, chunk, patience); err != nil {
			if s.stop.Err() != nil {
				return false, err
			}
			continue
		}
		switch {
		case answer.GetRefused() != "":
			return false, fmt.Errorf("%w: %s", ErrSnapshotRefused, answer.GetRefused())
		case answer.GetInstalled():
			return true, nil
		case chunk.Last || answer.GetNext() != chunk.Sequence+1:
			return false, fmt.Errorf("%w: %d is expected after %d", errOddAnswer, answer.GetNext(),
				chunk.Sequence)
		}
		return false, nil
	}
	return false, err
}

// await asks once and waits for the answer, patience at most.
func (s *SnapshotSender) await(node uint64, chunk *wire.SnapshotChunk,
	patience time.Duration) (*wire.SnapshotAnswer, error) {
	type result struct {
		answer *wire.SnapshotAnswer
		err    error
	}
	answered := make(chan result, 1)
	s.ask(node, time.Now().Add(patience), chunk, func(a *wire.SnapshotAnswer, err error) {
		select {
		case answered <- result{a, err}:
		default: // answered twice: the first counts
		}
	})
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case r := <-answered:
		return r.answer, r.err
	case <-timer.C:
		return nil, errNoAnswer
	case <-s.stop.Done():
		return nil, errSenderClosed
	}
}

// pace waits until that many bytes may be sent. All workers share one schedule: each
// reserves its time and then sleeps without the lock.
func (s *SnapshotSender) pace(bytes int) error {
	s.mu.Lock()
	now := time.Now()
	at := s.next
	if at.Before(now) {
		at = now
	}
	s.next = at.Add(time.Duration(float64(bytes) / float64(s.cfg.Rate) * float64(time.Second)))
	s.mu.Unlock()
	return s.sleep(at.Sub(now))
}
