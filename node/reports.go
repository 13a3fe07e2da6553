package node

import (
	"sync"

	"github.com/asynkron/protoactor-go/actor"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// reports is the actor that writes tablets' descriptors into meta. It owns the pending ones: for
// each tablet the latest, which supersedes earlier ones. Tablets' actors call add, which does not
// wait; the actor writes one at a time and waits for meta, up to reportTimeout each.
type reports struct {
	root  *actor.RootContext
	pid   *actor.PID
	write func(*pb.TabletDescriptor)

	mu sync.Mutex
	// latest holds the pending descriptors by tablet. For each a reportTablet is in the mailbox.
	latest map[uint64]*pb.TabletDescriptor
}

// reportTablet requests that the tablet's latest descriptor be written.
type reportTablet struct{ id uint64 }

// newReports starts the actor; stop stops it. It calls write on the actor's goroutine.
func newReports(root *actor.RootContext, write func(*pb.TabletDescriptor)) *reports {
	r := &reports{root: root, write: write, latest: map[uint64]*pb.TabletDescriptor{}}
	r.pid = root.Spawn(actor.PropsFromFunc(r.receive))
	return r
}

// add queues the descriptor, in place of a pending one of the same tablet. It does not block.
func (r *reports) add(d *pb.TabletDescriptor) {
	r.mu.Lock()
	before, waits := r.latest[d.TabletId]
	// A descriptor of an earlier epoch must not replace a later one.
	if !waits || d.Epoch >= before.Epoch {
		r.latest[d.TabletId] = d
	}
	r.mu.Unlock()
	if !waits {
		r.root.Send(r.pid, &reportTablet{d.TabletId})
	}
}

// receive is the actor's Receive.
func (r *reports) receive(c actor.Context) {
	m, ok := c.Message().(*reportTablet)
	if !ok {
		return
	}
	r.mu.Lock()
	d := r.latest[m.id]
	delete(r.latest, m.id)
	r.mu.Unlock() // before the write: a descriptor added from now on needs another message
	r.write(d)
}

// stop stops the actor after the current write, which the end of the node's life cancels.
func (r *reports) stop() error { return r.root.StopFuture(r.pid).Wait() }
