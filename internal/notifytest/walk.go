package notifytest

import (
	"slices"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// page is the answer to a walk as it grows.
type page struct {
	req *pb.WalkRequest
	out *pb.WalkResponse
}

// add takes an entry in, unless the page is full; then the walk is over.
func (p *page) add(e *pb.WalkEntry) bool {
	if len(p.out.Entries) == int(p.req.Limit) {
		p.out.Done = false
		return false
	}
	p.out.Entries = append(p.out.Entries, e)
	return true
}

// passed reports whether an earlier page has had the entry.
func (p *page) passed(c mvcc.Cell, ts mvcc.Timestamp) bool {
	if p.req.After == nil {
		return false
	}
	by := c.Compare(wire.Cell(p.req.After))
	return by < 0 || (by == 0 && uint64(ts) <= p.req.AfterTs)
}

// walk gives a page of the notify, lock or intent group.
func (c *Cluster) walk(v *mvcc.MemView, d *pb.TabletDescriptor, r *pb.WalkRequest) *pb.WalkResponse {
	p := &page{req: r, out: &pb.WalkResponse{Done: true}}
	span, ok := wire.Clip(d, mvcc.Span{Table: mvcc.TableID(r.Table), Start: wire.String(r.FromRow)})
	if !ok {
		return p.out
	}
	switch mvcc.Group(r.Group) {
	case mvcc.GroupNotify:
		for cell, n := range c.dirty.from(span.Table, wire.String(r.Column), span) {
			if !p.passed(cell, 0) && !p.add(&pb.WalkEntry{Cell: wire.CellPB(cell), Notify: wire.NotifyPB(&n)}) {
				break
			}
		}
	case mvcc.GroupLock:
		for cell, l := range v.Locks(span, false) {
			if !p.passed(cell, 0) && !p.add(&pb.WalkEntry{Cell: wire.CellPB(cell), Lock: wire.LockPB(l)}) {
				break
			}
		}
	case mvcc.GroupIntent:
		for cell, of := range c.intents.from(span.Table, wire.String(r.Column), span) {
			if !p.addIntents(cell, of) {
				break
			}
		}
	}
	return p.out
}

func (p *page) addIntents(cell mvcc.Cell, of map[mvcc.Timestamp]mvcc.Intent) bool {
	var starts []mvcc.Timestamp
	for ts := range of {
		if !p.passed(cell, ts) {
			starts = append(starts, ts)
		}
	}
	slices.Sort(starts)
	for _, ts := range starts {
		in := of[ts]
		if !p.add(&pb.WalkEntry{Cell: wire.CellPB(cell), Ts: uint64(ts), Intent: wire.IntentPB(&in)}) {
			return false
		}
	}
	return true
}
