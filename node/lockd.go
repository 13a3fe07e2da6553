package node

import (
	"context"
	"time"

	"github.com/percolator-go/percolator/actors/lockd"
	"github.com/percolator-go/percolator/actors/scanner"
	"github.com/percolator-go/percolator/cluster/route"
	"github.com/percolator-go/percolator/internal/notify"
	"github.com/percolator-go/percolator/internal/wire"
)

// locker asks the lock service of the node that leads a row's tablet, so that all who
// find the row ask the same one. The common case is local. Where the leader is not known
// or does not answer, locks are granted: losing them may double work, never break it.
//
// It owns nothing; scanners call it, on goroutines that wait for the answer. Locks that are
// given back are on their way afterwards, and may be lost: their leases end them.
type locker struct {
	self   uint64
	router *route.Router
	others *others
	local  *lockd.Lockd
}

var _ scanner.Locker = (*locker)(nil)

// TryLock implements scanner.Locker.
func (l *locker) TryLock(ctx context.Context, owner uint64, lease time.Duration,
	keys ...string) ([]bool, error) {
	out := make([]bool, len(keys))
	for node, at := range l.split(keys) {
		mine := make([]string, len(at))
		for i, k := range at {
			mine[i] = keys[k]
		}
		granted, err := l.try(ctx, node, owner, lease, mine)
		for i, k := range at {
			out[k] = err != nil || i >= len(granted) || granted[i]
		}
	}
	return out, nil
}

// split groups the keys, by index, by the node whose lock service they belong to.
func (l *locker) split(keys []string) map[uint64][]int {
	self := l.self
	out := map[uint64][]int{}
	for i, key := range keys {
		node := self
		if cell, ok := notify.LockedCell(key); ok && l.others.peers != nil {
			if held := l.router.Locate(cell.Table, cell.Row, 1); len(held) > 0 {
				if leader := l.router.Leader(held[0].TabletId); leader != 0 {
					node = leader
				}
			}
		}
		out[node] = append(out[node], i)
	}
	return out
}

func (l *locker) try(ctx context.Context, node, owner uint64, lease time.Duration,
	keys []string) ([]bool, error) {
	if node == l.self {
		return l.local.TryLock(ctx, owner, lease, keys...)
	}
	req := &wire.LockdRequest{
		Owner: owner, LeaseMs: uint32(lease.Milliseconds()), Try: keyBytes(keys),
	}
	r, err := l.others.call(ctx, node, &wire.PeerRequest{Body: &wire.PeerRequest_Lockd{Lockd: req}})
	return r.GetLockd().GetGranted(), err
}

// Unlock implements scanner.Locker.
func (l *locker) Unlock(owner uint64, keys ...string) {
	for node, at := range l.split(keys) {
		mine := make([]string, len(at))
		for i, k := range at {
			mine[i] = keys[k]
		}
		if node == l.self {
			l.local.Unlock(owner, mine...)
			continue
		}
		req := &wire.PeerRequest{
			Body: &wire.PeerRequest_Lockd{
				Lockd: &wire.LockdRequest{Owner: owner, Unlock: keyBytes(mine)},
			},
		}
		l.others.tell(node, time.Now().Add(unlockTimeout), req, func(*wire.PeerResponse, error) {})
	}
}

// unlockTimeout is how long a lock that is given back waits to be sent; its lease ends it anyway.
const unlockTimeout = 5 * time.Second

func keyBytes(keys []string) [][]byte {
	out := make([][]byte, len(keys))
	for i, k := range keys {
		out[i] = wire.Bytes(k)
	}
	return out
}
