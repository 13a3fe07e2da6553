package txn

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn/request"
	"github.com/percolator-go/percolator/internal/wire"
)

// The feed of changes (docs/adr/0072). Each range of a feed has a goroutine that polls the tablet
// of the range, from the range's position on; a range that a split has divided becomes two. The
// pages go to the goroutine that iterates, which counts a page as delivered, and so advances the
// resolved timestamp, only after it has yielded it. Everything ends with the iteration.

const (
	// maxPolls is the maximum number of concurrent requests, and of pages in memory, of one feed.
	maxPolls = 16
	// pollGap is the time between an answer and the next request for the range, and busyPollGap
	// that after an answer of busyPage changes or more: a request costs the tablet's node as much
	// processor time as several commits, so each request to a busy tablet should return many changes.
	pollGap     = 4 * time.Millisecond
	busyPollGap = 12 * time.Millisecond
	busyPage    = 4
	// resolveEvery is about the time between resolved timestamps of an idle range.
	resolveEvery = 200 * time.Millisecond
	// lockPatience is how long locks may keep a range from advancing before a feed checks their
	// transactions.
	lockPatience = 100 * time.Millisecond
	// changesPage is the size at which a page of changes ends, in bytes.
	changesPage = 256 << 10
	// holdStep is the minimum by which a feed advances its hold on history.
	holdStep = time.Second
)

// ChangeSpec selects the changes that Changes yields.
type ChangeSpec struct {
	Ranges []ScanSpec // without Reverse, Limit and KeysOnly
	// After is the timestamp after which changes are yielded; 0 means all cells as of the present
	// first, then later changes.
	After mvcc.Timestamp
}

// Change is a committed write of a cell, or a resolved timestamp.
type Change struct {
	Table string
	mvcc.ReadCell
	Initial  bool           // a cell of the initial state (ChangeSpec.After is 0)
	Resolved mvcc.Timestamp // not 0: every change up to it has been yielded; the other fields are zero
}

// feed is one iteration over changes.
type feed struct {
	c     *Client
	pages chan changesOf
	slots chan struct{} // full at maxPolls: a request has a slot until its page is passed on
	polls sync.WaitGroup

	mu     sync.Mutex
	ranges []*feedRange

	// Only the goroutine that iterates uses these fields.
	yield   func(Change, error) bool
	emitted mvcc.Timestamp // the last resolved timestamp
	held    mvcc.Timestamp // history is held from it on; 0: none
}

// feedRange is a range within one tablet, as far as its goroutine knows. All fields but delivered
// belong to that goroutine.
type feedRange struct {
	table   string
	span    mvcc.Span
	columns []string
	since   mvcc.Timestamp // position of the next request
	after   *pb.Cell       // the same position within the changes at since+1
	rounds  int            // attempts to resolve locks since the range last advanced
	idle    int            // requests since the last that returned a change
	last    int            // changes in the last answer

	delivered mvcc.Timestamp // every change up to it has been yielded; guarded by feed.mu
}

// changesOf is a page of changes of a range.
type changesOf struct {
	of       *feedRange
	changes  []*pb.ReadCell
	resolved mvcc.Timestamp // this page and earlier ones have every change up to it; 0: no news
	err      error
}

// Changes yields the changes of ranges of rows. The changes of a row are in the order of their
// commits; each is yielded at least once. An error is the last element: ErrSnapshotTooOld if
// changes after After, or after those yielded, are no longer in the history.
func (c *Client) Changes(ctx context.Context, spec ChangeSpec) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		f := &feed{
			c: c, pages: make(chan changesOf), slots: make(chan struct{}, maxPolls), yield: yield,
		}
		defer f.polls.Wait()
		defer cancel()
		defer f.hold(0)
		more, err := f.begin(ctx, spec)
		if err == nil && more {
			err = f.follow(ctx)
		}
		if err != nil {
			yield(Change{}, err)
		}
	}
}

// begin sets the ranges and their first position. It returns false if the iteration has ended.
func (f *feed) begin(ctx context.Context, spec ChangeSpec) (more bool, err error) {
	if len(spec.Ranges) == 0 {
		return false, Invalid("Changes needs at least one range of rows")
	}
	for _, s := range spec.Ranges {
		if s.Reverse || s.Limit != 0 || s.KeysOnly {
			return false, Invalid("Changes supports neither Reverse nor Limit nor KeysOnly")
		}
		if err := f.c.cfg.checkScan(s); err != nil {
			return false, err
		}
	}
	// A cached id may be that of a dropped table, at which the feed would end.
	if _, err := f.c.meta.Tables(ctx); err != nil {
		return false, err
	}
	for _, s := range spec.Ranges {
		id, err := f.c.meta.TableID(ctx, s.Table)
		if err != nil {
			return false, err
		}
		span := mvcc.Span{Table: id, Start: s.From, End: s.Before, HasEnd: s.HasBefore}
		if span.HasEnd && span.Start >= span.End {
			continue
		}
		f.ranges = append(f.ranges, &feedRange{table: s.Table, span: span, columns: s.Columns})
	}
	if len(f.ranges) == 0 { // it would never have a resolved timestamp
		return false, Invalid("Changes needs a range that can have rows: all given ones end before they begin")
	}
	after := spec.After
	if after == 0 {
		if after, more, err = f.initial(ctx); err != nil || !more {
			return false, err
		}
	} else {
		if err := f.c.oracle.GivenOut(ctx, after); err != nil {
			return false, err
		}
		f.emitted = after
		f.hold(after)
	}
	for _, r := range f.ranges {
		r.since, r.delivered = after, after
	}
	return true, nil
}

// initial yields the cells of the ranges at one timestamp, then that timestamp as resolved. Every
// tablet begins to record before the timestamp is requested, so that the changes after it need no
// scan.
func (f *feed) initial(ctx context.Context) (at mvcc.Timestamp, more bool, err error) {
	now, err := f.c.oracle.Get(ctx)
	if err != nil {
		return 0, false, err
	}
	for _, r := range f.ranges {
		if err := f.record(ctx, r, now); err != nil {
			return 0, false, err
		}
	}
	if at, err = f.c.oracle.Get(ctx); err != nil {
		return 0, false, err
	}
	f.hold(at)
	for _, r := range f.ranges {
		pages := scanner{c: f.c, at: at, span: r.span, columns: r.columns}
		for !pages.done {
			cells, err := pages.page(ctx)
			if err != nil {
				return 0, false, err
			}
			for _, p := range cells {
				if !f.yield(changeOf(r.table, p, true), nil) {
					return 0, false, nil
				}
			}
		}
	}
	f.emitted = at
	return at, f.yield(Change{Resolved: at}, nil), nil
}

// record makes every tablet of a range record changes. now is a timestamp of the oracle.
func (f *feed) record(ctx context.Context, r *feedRange, now mvcc.Timestamp) error {
	rest, wait := r.span, request.Retry{}
	for {
		d, resp, v, err := f.ask(ctx, &feedRange{span: rest, columns: r.columns, since: now}, 0)
		switch {
		case v == request.Answered && resp.CompleteFrom != 0:
			end, bounded := wire.EndOf(d)
			if !bounded || end.Table > rest.Table || (rest.HasEnd && end.Row >= rest.End) {
				return nil
			}
			rest.Start, wait = end.Row, request.Retry{}
			continue
		case v == request.Answered:
			err = errNotRecorded
		case v == request.Refused:
			return err
		}
		if err := wait.Again(ctx, f.c.cfg.OperationTimeout, v, err); err != nil {
			return err
		}
	}
}

// errNotRecorded is the state of a tablet whose record of changes has just begun.
var errNotRecorded = Errorf("%w: the tablet has just begun to record changes", ErrUnavailable)

// ask sends one request for changes to the first tablet of a range. The tablet answers without
// changes if there is none within wait.
func (f *feed) ask(ctx context.Context, r *feedRange, wait time.Duration) (*pb.TabletDescriptor,
	*pb.ChangesResponse, request.Verdict, error) {
	if f.c.work.Closed() {
		return nil, nil, request.Refused, ErrClosed
	}
	d, err := f.c.router.Locate(ctx, wire.Position{Table: r.span.Table, Row: r.span.Start})
	if err != nil {
		return nil, nil, request.Refused, err // final: Locate has retried
	}
	clip, _ := wire.Clip(d, r.span)
	req := &pb.ChangesRequest{
		Span: wire.SpanPB(clip), Since: uint64(r.since), After: r.after, MaxBytes: changesPage,
		WaitMs: uint32(wait.Milliseconds()),
	}
	for _, c := range r.columns {
		req.Columns = append(req.Columns, wire.Bytes(c))
	}
	ctx, cancel := context.WithTimeout(ctx, f.c.cfg.OperationTimeout+wait)
	defer cancel()
	resp, v, err := f.c.router.Try(ctx, d, &pb.TabletRequest{Op: &pb.TabletRequest_Changes{Changes: req}})
	if v == request.Answered && resp.GetChanges() == nil {
		v, err = request.Refused, Errorf("%w: unexpected answer to a request for changes", ErrUnavailable)
	}
	return d, resp.GetChanges(), v, err
}

// follow polls the ranges and yields what they return until the iteration ends or fails.
func (f *feed) follow(ctx context.Context) error {
	f.mu.Lock()
	for _, r := range f.ranges {
		f.polls.Go(func() { f.poll(ctx, r) })
	}
	f.mu.Unlock()
	for {
		select {
		case p := <-f.pages:
			if p.err != nil {
				return p.err
			}
			if !f.deliver(p) {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// deliver yields a page, and only then counts it as delivered. It returns false if the
// iteration has ended.
func (f *feed) deliver(p changesOf) bool {
	for _, c := range p.changes {
		if !f.yield(changeOf(p.of.table, c, false), nil) {
			return false
		}
	}
	f.mu.Lock()
	p.of.delivered = max(p.of.delivered, p.resolved)
	least := p.of.delivered
	for _, r := range f.ranges {
		least = min(least, r.delivered)
	}
	f.mu.Unlock()
	if least <= f.emitted {
		return true
	}
	f.emitted = least
	if least.Millis()-f.held.Millis() > holdStep.Milliseconds() {
		f.hold(least)
	}
	return f.yield(Change{Resolved: least}, nil)
}

// hold holds history from a timestamp on and ends the previous hold; 0 only ends it.
func (f *feed) hold(from mvcc.Timestamp) {
	before := f.held
	if f.held = from; from != 0 {
		f.c.leases.Add(from, true)
	}
	if before != 0 {
		f.c.leases.Remove(before)
	}
}

// changeOf converts a change. The value is the caller's own.
func changeOf(table string, c *pb.ReadCell, initial bool) Change {
	cell := record(c)
	cell.Value = handOut(cell.Value)
	return Change{Table: table, Initial: initial, ReadCell: cell}
}

// poll requests the changes of a range until ctx ends or it fails, on the range's goroutine.
func (f *feed) poll(ctx context.Context, r *feedRange) {
	var wait request.Retry
	for {
		if Sleep(ctx, r.gap(f.many())) != nil {
			return
		}
		select {
		case f.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		v, err := f.turn(ctx, r)
		<-f.slots
		switch {
		case ctx.Err() != nil:
			return
		case v == request.Answered:
			wait = request.Retry{}
			continue
		case v != request.Refused:
			err = wait.Again(ctx, f.c.cfg.OperationTimeout, v, err)
		}
		if err != nil {
			f.pass(ctx, changesOf{of: r, err: err})
			return
		}
	}
}

// gap returns the pause before the next request: none if more changes are known to exist. The
// requests of a feed with more ranges than slots (many) do not wait in tablets, so it polls idle
// ranges less often.
func (r *feedRange) gap(many bool) time.Duration {
	switch {
	case r.after != nil:
		return 0
	case r.last >= busyPage:
		return busyPollGap
	case r.idle == 0 || !many:
		return pollGap
	}
	return min(pollGap<<min(r.idle, 10), resolveEvery)
}

// pass passes a page to the goroutine that iterates. It returns false if ctx ends first.
func (f *feed) pass(ctx context.Context, p changesOf) bool {
	select {
	case f.pages <- p:
		return true
	case <-ctx.Done():
		return false
	}
}

// turn sends one request for a range and passes its answer on.
func (f *feed) turn(ctx context.Context, r *feedRange) (request.Verdict, error) {
	wait := resolveEvery
	if f.many() {
		wait = 0
	}
	d, resp, v, err := f.ask(ctx, r, wait)
	if v != request.Answered {
		return v, err
	}
	f.divide(ctx, r, d)
	switch from := mvcc.Timestamp(resp.CompleteFrom); {
	case resp.Status == pb.Status_STATUS_TOO_OLD:
		return request.Refused, tooOld(r.since)
	case resp.Status != pb.Status_STATUS_OK:
		return request.Refused, Errorf("%w: a request for changes was answered with %v", ErrUnavailable, resp.Status)
	case from == 0:
		return request.AskLater, errNotRecorded
	case from > r.since:
		if err := f.catchUp(ctx, r, from); err != nil {
			return request.Refused, err // final: catchUp has retried
		}
		return request.Answered, nil
	}
	r.idle++
	if r.last = len(resp.Changes); r.last > 0 {
		r.idle = 0
	}
	since := mvcc.Timestamp(resp.Resolved)
	r.after = nil
	if resp.More {
		last := resp.Changes[len(resp.Changes)-1]
		since, r.after = mvcc.Timestamp(last.CommitTs)-1, last.Cell
	}
	moved := since > r.since
	if r.since = since; moved || len(resp.Changes) > 0 {
		f.pass(ctx, changesOf{of: r, changes: resp.Changes, resolved: since})
	}
	if err := f.resolveOld(ctx, r, resp, moved); err != nil {
		return request.Refused, err
	}
	return request.Answered, nil
}

// many reports whether the feed has more ranges than slots for requests.
func (f *feed) many() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.ranges) > maxPolls
}

// divide restricts a range to the tablet d. The rest becomes a range of its own, at the same
// position, before the position of this one moves.
func (f *feed) divide(ctx context.Context, r *feedRange, d *pb.TabletDescriptor) {
	end, bounded := wire.EndOf(d)
	if !bounded || end.Table > r.span.Table || (r.span.HasEnd && end.Row >= r.span.End) {
		return
	}
	rest := &feedRange{table: r.table, span: r.span, columns: r.columns, since: r.since, after: r.after}
	rest.span.Start = end.Row
	r.span.End, r.span.HasEnd = end.Row, true
	f.mu.Lock()
	rest.delivered = r.delivered
	f.ranges = append(f.ranges, rest)
	f.mu.Unlock()
	f.polls.Go(func() { f.poll(ctx, rest) })
}

// resolveOld ends transactions whose locks have kept a range from advancing for lockPatience, as
// far as they have expired or are decided.
func (f *feed) resolveOld(ctx context.Context, r *feedRange, resp *pb.ChangesResponse, moved bool) error {
	if moved || len(resp.Locks) == 0 {
		r.rounds = 0
		return nil
	}
	if f.c.oracle.Estimate().Millis()-r.since.Millis() < lockPatience.Milliseconds() {
		return nil
	}
	locks := make([]mvcc.LockInfo, len(resp.Locks))
	for i, l := range resp.Locks {
		locks[i] = wire.LockInfo(l)
	}
	_, err := f.c.resolver.resolve(ctx, locks, r.rounds, true)
	r.rounds++
	if request.Permanent(err) {
		return err
	}
	return nil // other errors: the next answer repeats the attempt
}

// tooOld is the error of a position whose changes are no longer complete in the history.
func tooOld(since mvcc.Timestamp) error {
	return Errorf("%w: changes after timestamp %d (%s) are no longer complete: begin again with the initial state",
		ErrSnapshotTooOld, since, time.UnixMilli(since.Millis()).UTC().Format(time.RFC3339))
}

// catchUp passes on the changes of a range up to a timestamp from which its tablet's record is
// complete, by a scan of records: after a split, after a change of leader, and for a reader that
// is too slow for the record.
func (f *feed) catchUp(ctx context.Context, r *feedRange, to mvcc.Timestamp) error {
	rows := rowChanges{f: f, r: r}
	err := rows.scan(ctx, r.span, r.since, to)
	if errors.Is(err, ErrSnapshotTooOld) {
		err = tooOld(r.since)
	}
	if err != nil {
		return err
	}
	r.since, r.after = to, nil
	f.pass(ctx, changesOf{of: r, changes: rows.page, resolved: to})
	return nil
}
