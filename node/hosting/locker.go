package hosting

import (
	"context"
	"time"

	"github.com/percolator-go/percolator/actors/lockd"
	"github.com/percolator-go/percolator/actors/scanner"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/cluster/route"
	"github.com/percolator-go/percolator/internal/notify"
	"github.com/percolator-go/percolator/internal/wire"
)

// locker asks the lock service of the node that leads a row's tablet, so that all who
// find the row ask the same one. In the common case that is this node. Where the leader
// does not answer, locks are granted: the locks only save work, and correctness never
// rests on them.
//
// It owns nothing. Scanners call it, on goroutines that wait for the answer. An unlock
// may be in flight after Unlock has returned, and may be lost: the lease then ends the
// lock.
type locker struct {
	self   uint64
	router *route.Router
	peers  *cluster.PeerNodes
	local  *lockd.Lockd
}

var _ scanner.Locker = (*locker)(nil)

// TryLock implements scanner.Locker. It asks the nodes concerned one after another, and
// never returns an error: a node that does not answer grants.
func (l *locker) TryLock(ctx context.Context, owner uint64, lease time.Duration,
	keys ...string) ([]bool, error) {
	out := make([]bool, len(keys))
	// out is in the order of keys; split returns the indices of each node's keys.
	for node, at := range l.split(keys) {
		mine := make([]string, len(at))
		for i, k := range at {
			mine[i] = keys[k]
		}
		granted, err := l.try(ctx, node, owner, lease, mine)
		for i, k := range at {
			// A key without a result is granted, as all keys are if the node does not answer.
			out[k] = err != nil || i >= len(granted) || granted[i]
		}
	}
	return out, nil
}

// split groups the indexes of the keys by the node whose lock service they belong to.
// Keys whose tablet or leader is not known are this node's.
func (l *locker) split(keys []string) map[uint64][]int {
	self := l.self
	out := map[uint64][]int{}
	for i, key := range keys {
		node := self
		if cell, ok := notify.LockedCell(key); ok && !l.peers.Alone() {
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

// try asks one node for its keys. Locally the service is called without a message.
func (l *locker) try(ctx context.Context, node, owner uint64, lease time.Duration,
	keys []string) ([]bool, error) {
	if node == l.self {
		return l.local.TryLock(ctx, owner, lease, keys...)
	}
	req := &wire.LockdRequest{
		Owner: owner, LeaseMs: uint32(lease.Milliseconds()), Try: keyBytes(keys),
	}
	r, err := l.peers.Call(ctx, node, &wire.PeerRequest{Body: &wire.PeerRequest_Lockd{Lockd: req}})
	return r.GetLockd().GetGranted(), err
}

// Unlock implements scanner.Locker. It does not wait. If the tablet's leader has changed
// since TryLock, another node is asked in vain, and the lease ends the lock.
func (l *locker) Unlock(owner uint64, keys ...string) {
	for node, at := range l.split(keys) {
		mine := make([]string, len(at))
		for i, k := range at {
			mine[i] = keys[k]
		}
		// The local service is called without a message.
		if node == l.self {
			l.local.Unlock(owner, mine...)
			continue
		}
		req := &wire.PeerRequest{
			Body: &wire.PeerRequest_Lockd{
				Lockd: &wire.LockdRequest{Owner: owner, Unlock: keyBytes(mine)},
			},
		}
		l.peers.Tell(node, time.Now().Add(unlockTimeout), req, func(*wire.PeerResponse, error) {})
	}
}

// unlockTimeout limits the wait for the answer to an unlock.
const unlockTimeout = 5 * time.Second

// keyBytes returns the keys as the message has them.
func keyBytes(keys []string) [][]byte {
	out := make([][]byte, len(keys))
	for i, k := range keys {
		out[i] = wire.Bytes(k)
	}
	return out
}

// ownersPerProcess is the number of owners of advisory locks that one process can have.
const ownersPerProcess = 1 << 16

// LockOwners returns the first and the last number under which an incarnation of a node owns
// advisory locks. They are never 0. The numbers are a hash: two incarnations that share them
// may do the same work, as they would without locks.
func LockOwners(node, incarnation uint64) (first, last uint64) {
	const spread = 0x9e3779b97f4a7c15 // odd, so that neighbors are far apart
	first = max(1, (node*spread+incarnation)<<16)
	return first, first + ownersPerProcess - 1
}
