package rpc

import (
	"context"

	"golang.org/x/sync/semaphore"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
)

// This file bounds what clients make the server hold, by two semaphores: one for all
// connections and one for each. Bytes are taken by a stream's reader and its workers. Its
// writer gives them back, or whoever finds that there will be no answer.

// memory bounds what the operations of one connection take, and those of all connections
// together, from when an operation is handed to a worker until its answer is written.
//
// A stream's reader waits for what an operation takes at least. Meanwhile it holds its
// decoded message, which is not counted. A worker whose answer turns out to be large gives
// back its first room, keeps what its request takes, and waits for largeWithin at most, so
// no deadlock lasts.
type memory struct {
	all, own *semaphore.Weighted // of the server, of the connection
	most     int64               // the size of own
}

// shares is how many connections it takes to fill the server's memory.
const shares = 8

// newMemory returns the memory of one connection: a share of size bytes, the size of all.
func newMemory(all *semaphore.Weighted, size int64) *memory {
	return &memory{all: all, own: semaphore.NewWeighted(size / shares), most: size / shares}
}

// take waits for n bytes until ctx ends, whose error it returns. n must be at most
// m.most.
func (m *memory) take(ctx context.Context, n int64) error {
	// The connection's share first: a client that is over it must not hold what others
	// wait for.
	if err := m.own.Acquire(ctx, n); err != nil {
		return err
	}
	if err := m.all.Acquire(ctx, n); err != nil {
		m.own.Release(n) // nobody else would give it back
		return err
	}
	return nil
}

// give returns n bytes that were taken.
func (m *memory) give(n int64) {
	m.all.Release(n)
	m.own.Release(n)
}

// What an operation takes, in bytes.
const (
	// operationMemory is the part of every operation beside its request: a goroutine and
	// the messages around it.
	operationMemory = 8 << 10
	// largestAnswer is more than a tablet puts into one answer.
	largestAnswer = 24 << 20
)

// firstAnswer is how large an answer of each kind may become at first. A larger answer to
// a read is refused by the tablet, which says how large it is, and made again when there
// is memory for that; fit shortens a mutation's.
var firstAnswer = [...]int64{
	wire.SmallAnswer: maxLockBytes, wire.CellsAnswer: 16 << 10, wire.PageAnswer: 64 << 10,
}

// mostLearned bounds the first answers of a stream that reads larger cells.
const mostLearned = 256 << 10

// firstRoom returns how large the first answer to the request may become, in bytes. For
// reads of cells that follows the stream's last ones, so that few reads are made twice.
func (o *operations) firstRoom(req *pb.TabletRequest) int64 {
	kind := wire.OperationOf(req).Answer
	if kind == wire.CellsAnswer {
		return min(max(firstAnswer[kind], o.cells.Load()), mostLearned)
	}
	return firstAnswer[kind]
}

// learn notes how many bytes an answer to a read of cells took: a larger one counts at
// once, smaller ones lower the figure by a sixteenth each.
func (o *operations) learn(bytes int64) {
	last := o.cells.Load()
	o.cells.Store(max(bytes, last-last/16))
}
