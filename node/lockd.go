package node

import (
	"context"
	"errors"
	"time"

	"github.com/percolator-go/percolator/actors/scanner"
	"github.com/percolator-go/percolator/internal/notify"
	"github.com/percolator-go/percolator/internal/wire"
)

// locker asks the lock service of the node that leads a row's tablet, so that all who
// find the row ask the same one. The common case is local. Where the leader is not known
// or does not answer, locks are granted: losing them may double work, never break it.
type locker struct{ n *Node }

var _ scanner.Locker = (*locker)(nil)

// TryLock implements scanner.Locker.
func (l *locker) TryLock(ctx context.Context, owner uint64, lease time.Duration, keys ...string) ([]bool, error) {
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
	self := l.n.identity.NodeID
	out := map[uint64][]int{}
	for i, key := range keys {
		node := self
		if cell, ok := notify.LockedCell(key); ok && l.n.peers != nil {
			if held := l.n.router.Locate(cell.Table, cell.Row, 1); len(held) > 0 {
				if leader := l.n.router.Leader(held[0].TabletId); leader != 0 {
					node = leader
				}
			}
		}
		out[node] = append(out[node], i)
	}
	return out
}

func (l *locker) try(ctx context.Context, node, owner uint64, lease time.Duration, keys []string) ([]bool, error) {
	if node == l.n.identity.NodeID {
		return l.n.lockd.TryLock(ctx, owner, lease, keys...)
	}
	req := &wire.LockdRequest{Owner: owner, LeaseMs: uint32(lease.Milliseconds()), Try: keyBytes(keys)}
	r, err := l.n.peers.Call(ctx, node, &wire.PeerRequest{Body: &wire.PeerRequest_Lockd{Lockd: req}})
	if err == nil && r.GetError() != nil {
		return nil, errNoLocks
	}
	return r.GetLockd().GetGranted(), err
}

var errNoLocks = errors.New("node: the lock service of another node does not answer")

// Unlock implements scanner.Locker.
func (l *locker) Unlock(owner uint64, keys ...string) {
	for node, at := range l.split(keys) {
		mine := make([]string, len(at))
		for i, k := range at {
			mine[i] = keys[k]
		}
		if node == l.n.identity.NodeID {
			l.n.lockd.Unlock(owner, mine...)
			continue
		}
		req := &wire.PeerRequest{Body: &wire.PeerRequest_Lockd{Lockd: &wire.LockdRequest{Owner: owner, Unlock: keyBytes(mine)}}}
		l.n.peers.Tell(node, time.Now().Add(unlockTimeout), req, func(*wire.PeerResponse, error) {})
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
