package request

import (
	"context"
	"errors"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/coded"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn/tabletmap"
	"github.com/percolator-go/percolator/internal/wire"
)

// Correctness depends on whether an operation without an answer was applied. One that was not
// applied may be abandoned or sent again. One that may have been applied must be sent again if
// it is idempotent, or settled if it decides a transaction. Try translates every answer and
// error into one of six verdicts.

// Verdict is the outcome of one attempt at an operation.
type Verdict uint8

// Verdicts of Router.Try.
const (
	Answered    Verdict = iota // a result
	WrongTablet                // not applied; the map has been corrected: locate again
	AskLater                   // not applied; try again after a pause
	Busy                       // not applied; overloaded or without disk space: may be repeated
	Refused                    // not applied; permanent
	Unknown                    // may have been applied, or may be later
)

// Maximum numbers of descriptors in the cached tablet map, of descriptors in one answer of meta,
// and of entries in one answer to a walk.
const (
	maxTablets = 1 << 16
	locatePage = 64
	walkPage   = 512
)

// Router sends operations to the tablets that hold their positions. It caches the tablet map,
// corrects it by the tablets' answers, and repeats operations that were not applied or are
// idempotent.
type Router struct {
	transport Transport
	limits    mvcc.Limits
	timeout   time.Duration // of the retries of one operation
	tablets   *tabletmap.Map
	meta      *Meta // forgets its tables when a tablet does not know one

	MapMisses, WrongTablet atomic.Uint64 // for Stats
	sent                   sync.Map      // of *atomic.Uint64, by *wire.Operation: messages
}

// NewRouter returns a router with an empty map that retries each operation for the timeout.
func NewRouter(transport Transport, limits mvcc.Limits, timeout time.Duration, meta *Meta) *Router {
	return &Router{
		transport: transport, limits: limits, timeout: timeout, tablets: tabletmap.New(maxTablets),
		meta: meta,
	}
}

// countSent counts a message.
func (r *Router) countSent(req *pb.TabletRequest) {
	op := wire.OperationOf(req)
	n, ok := r.sent.Load(op)
	if !ok {
		n, _ = r.sent.LoadOrStore(op, &atomic.Uint64{})
	}
	n.(*atomic.Uint64).Add(1)
}

// Messages returns the numbers of messages by operation.
func (r *Router) Messages() map[string]uint64 {
	out := map[string]uint64{}
	r.sent.Range(func(op, n any) bool {
		out[op.(*wire.Operation).Name] += n.(*atomic.Uint64).Load()
		return true
	})
	return out
}

// StartsFrom returns p and the starts of the cached tablets after it.
func (r *Router) StartsFrom(p wire.Position) []wire.Position { return r.tablets.StartsFrom(p) }

// Locate returns the tablet that holds p, from the cache or from meta. It retries until ctx
// ends or OperationTimeout.
func (r *Router) Locate(ctx context.Context, p wire.Position) (*pb.TabletDescriptor, error) {
	if d := r.tablets.Find(p); d != nil {
		return d, nil
	}
	var wait Retry
	for {
		r.MapMisses.Add(1)
		// A page of the map costs as much as one descriptor, and the following tablets will
		// probably be needed soon.
		found, err := r.transport.Locate(ctx, p.Table, p.Row, locatePage)
		if err == nil {
			r.tablets.Insert(found...)
			if d := r.tablets.Find(p); d != nil {
				return d, nil
			}
			if len(found) > 0 && wire.Holds(found[0], p) {
				// The cache has newer descriptors that overlap found[0]: the answering node's map
				// is stale. Only the answer of this tablet (CODE_WRONG_TABLET) shows which one
				// holds p now.
				return found[0], nil
			}
			err = Errorf("%w: no tablet holds table %d row %q", ErrUnavailable, p.Table, p.Row)
		} else if err = adminError(err); Permanent(err) {
			return nil, err
		}
		if err := wait.Again(ctx, r.timeout, AskLater, err); err != nil {
			return nil, err
		}
	}
}

// LocateBefore returns the tablet that holds the rows of p's table just below p, for scans in
// descending order. Meta only looks up the tablet of a row, so LocateBefore passes the
// greatest possible row below p.
func (r *Router) LocateBefore(ctx context.Context, p wire.Position) (*pb.TabletDescriptor, error) {
	if d := r.tablets.FindBefore(p); d != nil {
		return d, nil
	}
	return r.Locate(ctx, wire.Position{Table: p.Table, Row: rowBelow(p.Row, r.limits.Row)})
}

// rowBelow returns the greatest row of at most limit bytes below row.
func rowBelow(row string, limit int) string {
	// Below "b" comes "a" with as many 0xff as fit; below "b\x00" comes "b".
	if row == "" {
		return ""
	}
	cut, last := row[:len(row)-1], row[len(row)-1]
	if last == 0 {
		return cut
	}
	below := cut + string([]byte{last - 1})
	return below + strings.Repeat("\xff", max(0, limit-len(below)))
}

// Try sends the operation once. err is nil only if the verdict is answered.
func (r *Router) Try(ctx context.Context, d *pb.TabletDescriptor,
	req *pb.TabletRequest) (*pb.TabletResponse, Verdict, error) {
	// The epoch identifies the range that the sender assumes. A tablet with another epoch
	// refuses the operation.
	req.TabletId, req.Epoch = d.TabletId, d.Epoch
	// The tablet may drop an operation after its caller's deadline.
	if deadline, ok := ctx.Deadline(); ok {
		req.DeadlineMs = max(1, time.Until(deadline).Milliseconds())
	}
	r.countSent(req)
	resp, err := r.transport.Send(ctx, d, req)
	if err != nil {
		var full *OverloadedError
		if errors.Is(err, ErrNotSent) && errors.As(err, &full) {
			return nil, Busy, err
		}
		if errors.Is(err, ErrNotSent) {
			return nil, AskLater, Errorf("%w: %w", ErrUnavailable, err)
		}
		return nil, Unknown, Errorf("%w: no reply to an operation: %w", ErrUnavailable, err)
	}
	if resp.Error == nil {
		// A tablet answers Status even to a wrong epoch, so the epoch of its answer counts.
		if now := resp.GetStatus().GetTablet(); now != nil && now.Epoch > d.Epoch {
			r.WrongTablet.Add(1)
			r.tablets.Heal(d, []*pb.TabletDescriptor{now})
			return nil, WrongTablet, Errorf("%w: the tablet's epoch has changed", ErrUnavailable)
		}
		return resp, Answered, nil
	}
	v, err := judge(resp.Error)
	switch {
	case v == WrongTablet:
		r.WrongTablet.Add(1)
		r.tablets.Heal(d, resp.Error.Descriptors)
	case resp.Error.Code == pb.Error_CODE_NO_TABLE:
		r.meta.forget()
	}
	return nil, v, err
}

// Fresh returns a new message with the same operation, since a sent message must not be
// changed.
func Fresh(req *pb.TabletRequest) *pb.TabletRequest {
	return &pb.TabletRequest{Op: req.Op, Trace: req.Trace}
}

// judge translates a tablet's error into a verdict.
func judge(e *pb.Error) (Verdict, error) {
	wrap := func(kind error) error { return Errorf("%w: %s", kind, e.Message) }
	switch e.Code {
	case pb.Error_CODE_WRONG_TABLET:
		return WrongTablet, wrap(ErrUnavailable)
	case pb.Error_CODE_NOT_LEADER, pb.Error_CODE_NOT_PROPOSED, pb.Error_CODE_UNAVAILABLE:
		if e.Reason == pb.Error_REASON_RESTORING {
			return AskLater, coded.Mark(wrap(ErrUnavailable), ErrRestoring)
		}
		return AskLater, wrap(ErrUnavailable)
	case pb.Error_CODE_OVERLOADED:
		after := time.Duration(e.RetryAfterMs) * time.Millisecond
		return Busy, &OverloadedError{RetryAfter: after, Message: e.Message}
	case pb.Error_CODE_DISK_FULL:
		// Try again: a node with free disk space may lead the tablet by then.
		if e.RetryAfterMs > 0 {
			return AskLater, wrap(ErrDiskFull)
		}
		// The shortage may last, so prewrites and one-phase commits fail; second phases and
		// rollbacks are repeated.
		return Busy, wrap(ErrDiskFull)
	case pb.Error_CODE_INVALID, pb.Error_CODE_EXISTS, pb.Error_CODE_FUTURE:
		return Refused, wrap(ErrInvalid)
	case pb.Error_CODE_TOO_LARGE:
		return Refused, wrap(ErrTooLarge)
	case pb.Error_CODE_NO_TABLE:
		return Refused, wrap(ErrTableGone)
	case pb.Error_CODE_PERMISSION:
		return Refused, wrap(ErrPermission)
	default: // UNKNOWN, INTERNAL and codes of later versions
		return Unknown, wrap(ErrUnavailable)
	}
}

// adminError translates an error of the Transport's administrative methods.
func adminError(err error) error {
	var refusal *ServerError
	if !errors.As(err, &refusal) {
		return Errorf("%w: %w", ErrUnavailable, err)
	}
	_, err = judge(&pb.Error{Code: refusal.Code, Message: refusal.Message})
	return err
}

// MarkRefusal makes errors.Is find this package's error for the code of a *ServerError, such as
// ErrInvalid. The text stays; any other error is returned unchanged.
func MarkRefusal(err error) error {
	refusal, ok := errors.AsType[*ServerError](err)
	if !ok {
		return err
	}
	_, code := judge(&pb.Error{Code: refusal.Code})
	return coded.Mark(err, code)
}

// Permanent reports whether a retry can't succeed.
func Permanent(err error) bool {
	return errors.Is(err, ErrInvalid) || errors.Is(err, ErrTooLarge) ||
		errors.Is(err, ErrNoTable) || errors.Is(err, ErrPermission)
}

// Call sends an idempotent operation to the tablet that holds p, and retries until an answer,
// a permanent refusal, the end of ctx or OperationTimeout. A patient call also retries while
// the tablet is busy. It returns the answer and the tablet that sent it.
func (r *Router) Call(
	ctx context.Context, p wire.Position, req *pb.TabletRequest, patient bool,
) (*pb.TabletResponse, *pb.TabletDescriptor, error) {
	var wait Retry
	for {
		d, err := r.Locate(ctx, p)
		if err != nil {
			return nil, nil, err
		}
		resp, v, err := r.Try(ctx, d, req)
		if v == Answered {
			return resp, d, nil
		}
		if v == Refused || (v == Busy && !patient) {
			return nil, nil, err
		}
		if err := wait.Again(ctx, r.timeout, v, err); err != nil {
			return nil, nil, err
		}
		req = Fresh(req)
	}
}

// Mutate is like a patient call but returns the result of a mutation.
func (r *Router) Mutate(ctx context.Context, p wire.Position,
	req *pb.TabletRequest) (*pb.MutationResult, error) {
	resp, _, err := r.Call(ctx, p, req, true)
	if err != nil {
		return nil, err
	}
	if resp.GetMutation() == nil {
		return nil, Errorf("%w: unexpected answer to a mutation from the tablet", ErrUnavailable)
	}
	return resp.GetMutation(), nil
}

// WalkFrom yields the entries of the notify or intent group of one column from a row on, in row
// order, page by page. It is not a snapshot: entries may be added and removed during the walk. An
// error ends it. For the lock group it ignores the column and yields the entries of all columns.
func (r *Router) WalkFrom(ctx context.Context, group mvcc.Group, column mvcc.ObservedColumn,
	row string) iter.Seq2[*pb.WalkEntry, error] {
	return func(yield func(*pb.WalkEntry, error) bool) {
		at, table := wire.Position{Table: column.Table, Row: row}, column.Table
		var last *pb.WalkEntry
		for {
			walk := &pb.WalkRequest{
				Group: uint32(group), Table: uint32(table), Class: uint32(column.Class),
				Column: wire.Bytes(column.Column), FromRow: wire.Bytes(at.Row), Limit: walkPage, After: last.GetCell(),
				AfterTs: last.GetTs(),
			}
			req := &pb.TabletRequest{Op: &pb.TabletRequest_Walk{Walk: walk}}
			resp, d, err := r.Call(ctx, at, req, true)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, e := range resp.GetWalk().GetEntries() {
				last = e
				if !yield(e, nil) {
					return
				}
			}
			if !resp.GetWalk().GetDone() && last != nil {
				at.Row = wire.String(last.Cell.GetRow())
				continue
			}
			end, bounded := wire.EndOf(d)
			if !bounded || end.Table != table {
				return
			}
			at, last = end, nil
		}
	}
}

// rowPage is the number of locks that LockAt requests at once.
const rowPage = 16

// LockAt returns the lock on the cell, if there is one.
func (r *Router) LockAt(ctx context.Context, cell mvcc.Cell) (l mvcc.LockInfo, there bool,
	err error) {
	var after *pb.Cell
	for {
		req := &pb.TabletRequest{Op: &pb.TabletRequest_Walk{Walk: &pb.WalkRequest{
			Group: uint32(mvcc.GroupLock), Table: uint32(cell.Table),
			FromRow: wire.Bytes(cell.Row), Limit: rowPage, After: after,
		}}}
		resp, _, err := r.Call(ctx, PosOf(cell), req, true)
		if err != nil {
			return l, false, err
		}
		entries := resp.GetWalk().GetEntries()
		for _, e := range entries {
			switch at := wire.Cell(e.GetCell()); {
			case at == cell:
				return mvcc.LockInfo{Cell: at, Lock: wire.Lock(e.GetLock())}, true, nil
			case at.Table != cell.Table || at.Row != cell.Row:
				return l, false, nil
			}
		}
		if resp.GetWalk().GetDone() || len(entries) == 0 {
			return l, false, nil
		}
		after = entries[len(entries)-1].GetCell()
	}
}

// PosOf returns the cell's position in the tablet map.
func PosOf(c mvcc.Cell) wire.Position { return wire.Position{Table: c.Table, Row: c.Row} }
