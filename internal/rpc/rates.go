package rpc

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
)

// Rate limits of clients by the policy: cells per second that one identity reads or writes
// through this node, in total and per table. The workers of all streams call it. Each node
// counts only its own clients. Operations that end transactions are not limited, so that a
// limit leaves no locks behind.

// rates are the token buckets of identities. A bucket holds one second of its rate.
type rates struct {
	refused atomic.Uint64 // operations

	mu      sync.Mutex
	buckets map[bucketOf]*rate.Limiter
}

// bucketOf is the key of a bucket: an identity and a table; 0 means all tables.
type bucketOf struct {
	identity string
	table    uint32
}

// maxBuckets is the maximum number of buckets of a node. Beyond it full buckets, which equal
// new ones, are removed, or all if none is full.
const maxBuckets = 4096

// bucket returns the bucket of the key, with the rate. It creates a missing one, which is full.
func (r *rates) bucket(of bucketOf, perSecond uint64, now time.Time) *rate.Limiter {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.buckets[of]
	if b == nil {
		if len(r.buckets) >= maxBuckets {
			for key, other := range r.buckets {
				if other.TokensAt(now) >= float64(other.Burst()) {
					delete(r.buckets, key)
				}
			}
		}
		if r.buckets == nil || len(r.buckets) >= maxBuckets {
			r.buckets = map[bucketOf]*rate.Limiter{}
		}
		b = rate.NewLimiter(rate.Limit(perSecond), int(perSecond))
		r.buckets[of] = b
	}
	if b.Burst() != int(perSecond) { // the policy has changed
		b.SetLimitAt(now, rate.Limit(perSecond))
		b.SetBurstAt(now, int(perSecond))
	}
	return b
}

// take takes tokens for the cells named in the request from the buckets of the identity, or
// returns an error if there are too few. A request for more cells than a bucket's capacity
// takes a full bucket.
func (r *rates) take(p *pb.Policy, identity string, req *pb.TabletRequest, now time.Time) *pb.Error {
	all, each := p.GetClientRate(), p.GetClientTableRate()
	if identity == "" || all == 0 && each == 0 || cellsOf(req) == 0 {
		return nil
	}
	var taken []*rate.Reservation
	var wait time.Duration
	var bound string
	reserve := func(table uint32, perSecond uint64, cells int, name string) {
		b := r.bucket(bucketOf{identity, table}, perSecond, now)
		one := b.ReserveN(now, min(cells, b.Burst()))
		taken = append(taken, one)
		if d := one.DelayFrom(now); d > wait {
			wait, bound = d, name
		}
	}
	if all > 0 {
		reserve(0, all, cellsOf(req), "client-rate")
	}
	if each > 0 {
		cells := map[uint32]int{}
		for _, table := range tablesOf(req) {
			cells[table]++
		}
		for table, n := range cells {
			reserve(table, each, n, "client-table-rate")
		}
	}
	if wait == 0 {
		return nil
	}
	for _, one := range taken {
		one.CancelAt(now)
	}
	r.refused.Add(1)
	return &pb.Error{
		Code: pb.Error_CODE_OVERLOADED, RetryAfterMs: uint32(min(wait, maxCallPause).Milliseconds()) + 1,
		Message: fmt.Sprintf("%q does more on this node than the policy's %s allows a second: try again later",
			identity, bound),
	}
}

// answered takes tokens for cells, those of an answer beyond those named in the request, but at
// most a full bucket. The buckets may become negative; until they are refilled take refuses
// operations.
func (r *rates) answered(p *pb.Policy, identity string, req *pb.TabletRequest, cells int,
	now time.Time) {
	all, each := p.GetClientRate(), p.GetClientTableRate()
	if identity == "" || all == 0 && each == 0 || cells <= 0 {
		return
	}
	owe := func(table uint32, perSecond uint64) {
		b := r.bucket(bucketOf{identity, table}, perSecond, now)
		b.ReserveN(now, min(cells, b.Burst()))
	}
	if all > 0 {
		owe(0, all)
	}
	if tables := tablesOf(req); each > 0 && len(tables) > 0 {
		owe(tables[0], each)
	}
}

// cellsOf returns the number of cells named in the request, at least 1, or 0 if the operation
// finishes a transaction or cleans up (wire.Finishes).
func cellsOf(req *pb.TabletRequest) int {
	if wire.OperationOf(req).Has(wire.Finishes) {
		return 0
	}
	s := wire.SubjectOf(req)
	return max(1, len(s.Writes)+len(s.Cells)+len(s.Intents))
}

// cellsIn returns the number of cells in the answer to a request for a range.
func cellsIn(resp *pb.TabletResponse) int {
	return len(resp.GetScan().GetCells()) + len(resp.GetChanges().GetChanges()) +
		len(resp.GetRawScan().GetCells()) +
		len(resp.GetWalk().GetEntries()) + len(resp.GetHistory().GetEntries())
}
