package node

import (
	"sync"

	"github.com/asynkron/protoactor-go/actor"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// reports is the actor that writes tablets' descriptors into meta. It owns those that
// wait: one for each tablet, the latest, which says all that earlier ones did. Tablets'
// actors add, and do not wait; the actor writes one at a time and waits for meta, up to
// reportTimeout each.
type reports struct {
	root  *actor.RootContext
	pid   *actor.PID
	write func(*pb.TabletDescriptor)

	mu sync.Mutex
	// latest has the descriptors, by tablet, that the actor has not taken yet. A
	// reportTablet is in its mailbox for each.
	latest map[uint64]*pb.TabletDescriptor
}

// reportTablet asks for the tablet's latest report to be written.
type reportTablet struct{ id uint64 }

// newReports starts the actor; stop ends it. write is called on the actor's goroutine.
func newReports(root *actor.RootContext, write func(*pb.TabletDescriptor)) *reports {
	r := &reports{root: root, write: write, latest: map[uint64]*pb.TabletDescriptor{}}
	r.pid = root.Spawn(actor.PropsFromFunc(r.receive))
	return r
}

// add has the descriptor written, in place of an earlier one of the tablet that has not
// been. It does not block.
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

// receive is the actor.
func (r *reports) receive(c actor.Context) {
	m, ok := c.Message().(*reportTablet)
	if !ok {
		return
	}
	r.mu.Lock()
	d := r.latest[m.id]
	delete(r.latest, m.id)
	r.mu.Unlock() // before it waits: a report that comes now needs another message
	r.write(d)
}

// stop ends the actor after the report that it is writing, which the end of the node's
// life cuts short.
func (r *reports) stop() error { return r.root.StopFuture(r.pid).Wait() }
