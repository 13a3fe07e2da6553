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

// This file bounds the rates of clients by the policy: cells a second that one identity reads or
// writes by this node, in all and in each table. The workers of all streams call it. Each node
// counts what its own clients do. What ends transactions is not bounded, so that no bound
// leaves locks behind.

// rates are the token buckets of identities. A bucket holds what its rate gives in a second.
type rates struct {
	refused atomic.Uint64 // operations

	mu      sync.Mutex
	buckets map[bucketOf]*rate.Limiter
}

// bucketOf names a bucket: of an identity, in one table unless that is 0.
type bucketOf struct {
	identity string
	table    uint32
}

// maxBuckets bounds the buckets of a node. Beyond it those that are full, which are the same as new
// ones, are dropped, and if there are none, all.
const maxBuckets = 4096

// bucket returns a bucket with the rate.
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

// take takes the cells that the request names from the buckets of its identity, or returns why
// the operation is refused now. A request for more cells than a bucket holds takes a full one.
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
		Message: fmt.Sprintf("%q does more on this node than the policy's %s allows a second: come again later",
			identity, bound),
	}
}

// answered takes the cells of an answer beyond those that its request named. The buckets may
// owe them: then the operations that follow wait.
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

// cellsOf returns the number of cells that the request names, at least 1; 0 if it ends a
// transaction that was counted.
func cellsOf(req *pb.TabletRequest) int {
	if wire.OperationOf(req).Has(wire.Finishes) {
		return 0
	}
	s := wire.SubjectOf(req)
	return max(1, len(s.Writes)+len(s.Cells)+len(s.Intents))
}

// cellsIn returns the number of cells in the answer to a request for a range.
func cellsIn(resp *pb.TabletResponse) int {
	return len(resp.GetScan().GetCells()) + len(resp.GetRawScan().GetCells()) +
		len(resp.GetWalk().GetEntries()) + len(resp.GetHistory().GetEntries())
}
