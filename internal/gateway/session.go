package gateway

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/semaphore"
	"google.golang.org/protobuf/proto"

	percolator "github.com/percolator-go/percolator"
	gw "github.com/percolator-go/percolator/api/gateway/v1"
	"github.com/percolator-go/percolator/internal/txn"
)

// Sessions: interactive transactions and snapshots, which live in the memory of one node. A session
// ends by Commit or Rollback, or once no call has used it for its lease. A dead client therefore
// leaves nothing behind but, if it has died during the commit, locks that expire.

const (
	defaultLease, minLease, maxLease = 10 * time.Second, time.Second, time.Minute
	// maxSessions is the maximum number of sessions of a node, maxOwnSessions that of one caller;
	// neither counts sessions of runs.
	maxSessions, maxOwnSessions = 1024, 128
	// maxAnswers is the maximum number of ended commits of a node whose answers are kept for their leases.
	maxAnswers = 16 << 10
	// sessionMemory is the maximum size of the writes that all sessions have buffered, in bytes.
	sessionMemory = 128 << 20
	// writeOverhead is the memory of a buffered write beyond its row, column and value, in bytes.
	writeOverhead = 256
)

// errRun is the error of a commit or a rollback of a run.
var errRun = txn.Invalid("the session is of an observer's run: finish it by Work.Finish")

// errSnapshot is the error of a change in a session that is a snapshot.
var errSnapshot = txn.Invalid("the session is a snapshot, which neither writes nor commits")

// sessions are the sessions of a node.
type sessions struct {
	node, incarnation uint64
	memory            *semaphore.Weighted
	expired           *atomic.Uint64 // counts sessions that end with their leases

	mu   sync.Mutex
	byID map[string]*session
	// sessions that count against maxSessions: neither those of runs nor those that Commit has
	// ended
	open   int
	own    map[*caller]int // the same, by caller
	kept   int             // maximum length of past
	past   []*session      // sessions that Commit has ended, the oldest first; byID may lack some
	closed bool
}

func newSessions(node, incarnation uint64, expired *atomic.Uint64) *sessions {
	return &sessions{
		node: node, incarnation: incarnation, memory: semaphore.NewWeighted(sessionMemory), expired: expired,
		byID: map[string]*session{}, own: map[*caller]int{}, kept: maxAnswers,
	}
}

// session is one session. The mutex of sessions guards its mutable fields.
type session struct {
	id      string
	who     *caller
	lease   time.Duration
	reader  percolator.Reader
	tx      *percolator.Tx       // nil: a snapshot
	snap    *percolator.Snapshot // nil: a transaction
	run     *run                 // nil: not of an observer
	outcome outcome
	expiry  *time.Timer

	counted bool          // in sessions.open
	calls   int           // running
	used    time.Time     // the end of the last call
	held    int64         // its bytes of sessions.memory
	ending  chan struct{} // closed when Commit has ended; nil: neither Commit nor Finish has begun
	answer  *gw.CommitResponse
	err     error // of Commit
}

// begin adds a session with a new id.
func (all *sessions) begin(s *session) error {
	all.mu.Lock()
	defer all.mu.Unlock()
	switch {
	case all.closed:
		return percolator.ErrClosed
	case s.run != nil: // ObserveRequest.concurrency bounds the runs of a worker
	case all.open >= maxSessions:
		return txn.Errorf("%w: this node already has %d sessions", percolator.ErrOverloaded, maxSessions)
	case all.own[s.who] >= maxOwnSessions:
		return txn.Errorf("%w: this caller already has %d sessions on this node", percolator.ErrOverloaded, maxOwnSessions)
	}
	s.id = fmt.Sprintf("%d-%d-%s", all.node, all.incarnation, rand.Text())
	s.used = time.Now()
	s.who.retain()
	all.byID[s.id] = s
	if s.run == nil {
		s.counted = true
		all.open++
		all.own[s.who]++
	}
	s.expiry = time.AfterFunc(s.lease, func() { all.expire(s) })
	return nil
}

// expire ends the session if its lease has ended, and otherwise sets the timer that calls expire
// again to the time at which it ends at the earliest.
func (all *sessions) expire(s *session) {
	all.mu.Lock()
	defer all.mu.Unlock()
	left := s.lease - time.Since(s.used)
	if s.calls > 0 {
		left = s.lease
	}
	if left > 0 {
		s.expiry.Reset(left)
		return
	}
	if s.ending == nil {
		all.expired.Add(1)
	}
	all.remove(s)
}

// remove ends the session. The caller holds mu; no call of the session is running, unless it is of
// a run or the server closes.
func (all *sessions) remove(s *session) {
	if all.byID[s.id] != s {
		return
	}
	delete(all.byID, s.id)
	all.stop(s)
	s.expiry.Stop()
	if s.snap != nil {
		_ = s.snap.Close()
	}
	if s.tx != nil && s.run == nil {
		_ = s.tx.Rollback(context.Background()) // Rollback sends nothing
	}
	s.who.release()
}

// stop releases the memory of the session's writes, and no longer counts the session against
// maxSessions and maxOwnSessions. The caller holds mu.
func (all *sessions) stop(s *session) {
	all.memory.Release(s.held)
	s.held = 0
	if !s.counted {
		return
	}
	s.counted = false
	all.open--
	if all.own[s.who]--; all.own[s.who] == 0 {
		delete(all.own, s.who)
	}
}

// find returns the caller's session. The caller holds mu.
func (all *sessions) find(who *caller, id string) (*session, error) {
	s := all.byID[id]
	if s != nil && s.who.identity.Account() == who.identity.Account() {
		return s, nil
	}
	var node, incarnation uint64
	if n, _ := fmt.Sscanf(id, "%d-%d-", &node, &incarnation); n == 2 && node != all.node {
		return nil, txn.Errorf("%w: node %d", errSessionElsewhere, node)
	}
	return nil, errSessionEnded
}

// use returns the session for one call, which must call done at its end.
func (all *sessions) use(who *caller, id string) (s *session, done func(), err error) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if s, err = all.find(who, id); err != nil {
		return nil, nil, err
	}
	switch {
	case s.ending == nil:
	case s.answer == nil && s.err == nil:
		return nil, nil, errSessionBusy
	default:
		return nil, nil, errSessionEnded
	}
	s.calls++
	return s, func() {
		all.mu.Lock()
		defer all.mu.Unlock()
		s.calls--
		s.used = time.Now()
	}, nil
}

// buffer buffers the changes in a request, whose memory counts against the bound of all sessions.
func (all *sessions) buffer(s *session, req proto.Message, e *edits) error {
	count := len(e.sets) + len(e.deletes) + len(e.notifications) + len(e.locks) + len(e.checked)
	if err := all.reserve(s, int64(proto.Size(req)+count*writeOverhead)); err != nil {
		return err
	}
	e.apply(s.tx)
	return nil
}

// reserve counts the memory of writes against the bound of all sessions.
func (all *sessions) reserve(s *session, n int64) error {
	if !all.memory.TryAcquire(n) {
		return txn.Errorf("%w: the sessions of this node already buffer %d MiB of writes", percolator.ErrOverloaded,
			sessionMemory>>20)
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.byID[s.id] != s {
		all.memory.Release(n)
		return errSessionEnded
	}
	s.held += n
	return nil
}

// commit begins the commit of the session, or returns the one that has begun. ofRun reports that
// the session must be of a run. first reports that the caller must commit and then call ended or,
// for a run, send its verdict.
func (all *sessions) commit(who *caller, id string, ofRun bool) (s *session, first bool, err error) {
	all.mu.Lock()
	defer all.mu.Unlock()
	s, err = all.find(who, id)
	switch {
	case err != nil:
		return nil, false, err
	case s.tx == nil && s.ending == nil:
		return nil, false, errSnapshot
	case ofRun && s.run == nil:
		return nil, false, txn.Invalid("the session is not of an observer's run: commit it")
	case !ofRun && s.run != nil:
		return nil, false, errRun
	case s.ending != nil:
		return s, false, nil
	case s.calls > 0:
		return nil, false, errSessionBusy
	}
	s.ending = make(chan struct{})
	s.calls++ // the method ended undoes it: while a commit runs, the session does not expire
	return s, true, nil
}

// ended records the result of a commit, which later calls of Commit return until the lease ends, or until maxAnswers
// later ones have ended.
func (all *sessions) ended(s *session, answer *gw.CommitResponse, err error) {
	all.mu.Lock()
	defer all.mu.Unlock()
	s.answer, s.err = answer, err
	s.calls--
	s.used = time.Now()
	close(s.ending)
	if all.byID[s.id] != s {
		return
	}
	all.stop(s)
	s.tx, s.reader = nil, nil // for the garbage collector
	if all.past = append(all.past, s); len(all.past) > all.kept {
		all.remove(all.past[0])
		all.past = all.past[1:]
	}
}

// close ends all sessions.
func (all *sessions) close() {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.closed = true
	for _, s := range all.byID {
		all.remove(s)
	}
}

// Begin implements the service Gateway.
func (s *service) Begin(ctx context.Context,
	r *connect.Request[gw.BeginRequest]) (*connect.Response[gw.BeginResponse], error) {
	req, who := r.Msg, callerIn(ctx)
	lease := time.Duration(req.LeaseMs) * time.Millisecond
	lease = cmp.Or(lease, defaultLease)
	switch {
	case lease < minLease || lease > maxLease:
		return nil, txn.Invalid("a lease of %v; it must be between %v and %v", lease, minLease, maxLease)
	case req.Timestamp != 0 && !req.ReadOnly:
		return nil, txn.Invalid("a transaction reads the newest state: set read_only to read at a timestamp")
	case req.IdempotencyKey != "" && req.ReadOnly:
		return nil, txn.Invalid("a snapshot commits nothing: it needs no idempotency key")
	case len(req.Name) > maxName:
		return nil, txn.Invalid("the name has %d bytes; at most %d are possible", len(req.Name), maxName)
	}
	place, err := s.outcomes.of(ctx, who.identity, req.IdempotencyKey, &gw.BeginRequest{Name: req.Name})
	if err != nil {
		return nil, err
	}
	opened := &session{who: who, lease: lease, outcome: place}
	answer := &gw.BeginResponse{LeaseMs: uint32(lease.Milliseconds()), NodeId: s.sessions.node, Address: s.address}
	start, err := opened.open(ctx, req)
	if err != nil {
		return nil, err
	}
	answer.StartTimestamp = uint64(start)
	committed, err := opened.committed(ctx)
	s.outcomes.failed(err)
	if err == nil && committed == 0 {
		err = s.sessions.begin(opened)
	}
	if err != nil || committed != 0 {
		opened.abandon()
	}
	if err != nil {
		return nil, err
	}
	answer.Session, answer.AlreadyCommitted = opened.id, uint64(committed)
	return connect.NewResponse(answer), nil
}

// open begins the transaction, or the snapshot, and returns its timestamp.
func (s *session) open(ctx context.Context, req *gw.BeginRequest) (start percolator.Timestamp, err error) {
	if !req.ReadOnly {
		if s.tx, err = s.who.db.Begin(ctx, percolator.Name(req.Name)); err != nil {
			return 0, err
		}
		s.reader = s.tx
		return s.tx.StartTS(), nil
	}
	if s.snap, err = s.who.snapshot(ctx, req.Timestamp); err != nil {
		return 0, err
	}
	s.reader = s.snap
	return s.snap.StartTS(), nil
}

// committed returns the commit timestamp of an earlier transaction with the session's key, 0 if there is
// none.
func (s *session) committed(ctx context.Context) (percolator.Timestamp, error) {
	if !s.outcome.given() {
		return 0, nil
	}
	cells, err := s.tx.GetMulti(ctx, s.outcome.cell())
	if err != nil || len(cells) == 0 {
		return 0, err
	}
	earlier, err := s.outcome.stored(cells[0])
	return percolator.Timestamp(earlier.GetCommitTimestamp()), err
}

// abandon ends what open has begun.
func (s *session) abandon() {
	if s.tx != nil {
		_ = s.tx.Rollback(context.Background())
	}
	if s.snap != nil {
		_ = s.snap.Close()
	}
}

// Write implements the service Gateway.
func (s *service) Write(ctx context.Context,
	r *connect.Request[gw.WriteRequest]) (*connect.Response[gw.WriteResponse], error) {
	e, err := editsOf(r.Msg)
	if err != nil {
		return nil, err
	}
	one, done, err := s.sessions.use(callerIn(ctx), r.Msg.Session)
	if err != nil {
		return nil, err
	}
	defer done()
	if one.tx == nil {
		return nil, errSnapshot
	}
	return connect.NewResponse(&gw.WriteResponse{}), s.sessions.buffer(one, r.Msg, &e)
}

// Commit implements the service Gateway.
func (s *service) Commit(ctx context.Context,
	r *connect.Request[gw.CommitRequest]) (*connect.Response[gw.CommitResponse], error) {
	one, first, err := s.sessions.commit(callerIn(ctx), r.Msg.Session, false)
	if err != nil {
		return nil, err
	}
	if first {
		s.commitSession(ctx, one)
	}
	select {
	case <-one.ending:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if one.err != nil {
		return nil, one.err
	}
	return connect.NewResponse(one.answer), nil
}

// commitSession commits the session's transaction and records the result, also after a panic.
func (s *service) commitSession(ctx context.Context, one *session) {
	var at percolator.Timestamp
	err := percolator.ErrCommitUnknown
	defer func() { s.sessions.ended(one, &gw.CommitResponse{CommitTimestamp: uint64(at)}, err) }()
	if one.outcome.given() {
		if err = one.outcome.store(one.tx, &gw.TransactResponse{Committed: true}); err != nil {
			return
		}
	}
	at, err = one.tx.Commit(ctx)
}

// Rollback implements the service Gateway.
func (s *service) Rollback(ctx context.Context,
	r *connect.Request[gw.RollbackRequest]) (*connect.Response[gw.RollbackResponse], error) {
	all := s.sessions
	one, done, err := all.use(callerIn(ctx), r.Msg.Session)
	switch {
	case err == nil:
		done()
		all.mu.Lock()
		defer all.mu.Unlock()
		switch {
		case one.run != nil:
			return nil, errRun
		case one.calls > 0:
			return nil, errSessionBusy
		}
		all.remove(one)
	case !errors.Is(err, errSessionEnded):
		return nil, err
	}
	return connect.NewResponse(&gw.RollbackResponse{}), nil
}

// KeepAlive implements the service Gateway.
func (s *service) KeepAlive(ctx context.Context,
	r *connect.Request[gw.KeepAliveRequest]) (*connect.Response[gw.KeepAliveResponse], error) {
	one, done, err := s.sessions.use(callerIn(ctx), r.Msg.Session)
	if err != nil {
		return nil, err
	}
	done()
	return connect.NewResponse(&gw.KeepAliveResponse{LeaseMs: uint32(one.lease.Milliseconds())}), nil
}
