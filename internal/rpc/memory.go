package rpc

import (
	"context"

	"golang.org/x/sync/semaphore"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
)

// Memory limits of clients' operations, by two semaphores: one for all connections and one per
// connection. A stream's reader and workers acquire bytes. Its writer releases them, or the
// goroutine that finds that there will be no answer.

// memory limits the memory of the operations of one connection, and of all connections
// together, from the hand-over of an operation to a worker until its answer is written.
//
// A stream's reader waits for an operation's minimum while it holds the decoded message, which
// is not counted. A worker whose answer turns out to be large releases the reservation for its
// answer, keeps that of its request, and waits for at most largeWithin, so no deadlock lasts.
type memory struct {
	all, own *semaphore.Weighted // all: of the server, own: of the connection
	most     int64               // the size of own
}

// shares is the number of connections that can together use all of the server's memory.
const shares = 8

// newMemory returns the memory of one connection: a share of size bytes, the size of all.
func newMemory(all *semaphore.Weighted, size int64) *memory {
	return &memory{all: all, own: semaphore.NewWeighted(size / shares), most: size / shares}
}

// take waits for n bytes. It returns ctx's error if ctx ends first. n must be at most m.most.
func (m *memory) take(ctx context.Context, n int64) error {
	// Acquire from the connection's share first: a client that exceeds it must not hold memory
	// that others wait for.
	if err := m.own.Acquire(ctx, n); err != nil {
		return err
	}
	if err := m.all.Acquire(ctx, n); err != nil {
		m.own.Release(n) // after an error the caller releases nothing
		return err
	}
	return nil
}

// give releases n bytes.
func (m *memory) give(n int64) {
	m.all.Release(n)
	m.own.Release(n)
}

// Memory of an operation, in bytes.
const (
	// operationMemory is the cost of every operation in addition to its request: a goroutine
	// and the enclosing messages.
	operationMemory = 8 << 10
	// largestAnswer is an upper bound of a tablet's answer.
	largestAnswer = 24 << 20
)

// firstAnswer is the initial reservation for an answer of each kind. If the answer to a read
// is larger, the tablet refuses it and reports the size, and the read is repeated when there
// is memory for it; fit shortens a mutation's answer.
var firstAnswer = [...]int64{
	wire.SmallAnswer: maxLockBytes, wire.CellsAnswer: 16 << 10, wire.PageAnswer: 64 << 10,
}

// mostLearned is the maximum initial reservation for the answer to a read of cells.
const mostLearned = 256 << 10

// firstRoom returns the initial reservation for the answer to the request, in bytes. For reads
// of cells it adapts to the stream's recent reads, so that few reads are repeated.
func (o *performer) firstRoom(req *pb.TabletRequest) int64 {
	kind := wire.OperationOf(req).Answer
	if kind == wire.CellsAnswer {
		return min(max(firstAnswer[kind], o.cells.Load()), mostLearned)
	}
	return firstAnswer[kind]
}

// learn records the size of an answer to a read of cells: a larger one becomes the estimate at
// once, a smaller one lowers the estimate by a sixteenth of the estimate, but not below the
// answer's size.
func (o *performer) learn(bytes int64) {
	last := o.cells.Load()
	o.cells.Store(max(bytes, last-last/16))
}
