package node

import (
	"sync"

	"github.com/asynkron/protoactor-go/actor"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// reports is the actor that writes into meta what tablets say of themselves. It waits for
// meta, for as long as that is away; meanwhile one report waits for each tablet, the
// latest: it tells all that those before it did.
type reports struct {
	root  *actor.RootContext
	pid   *actor.PID
	write func(*pb.TabletDescriptor)

	mu sync.Mutex
	// by tablet: not written yet; a reportTablet is under way for each
	latest map[uint64]*pb.TabletDescriptor
}

// reportTablet asks for the tablet's latest report to be written.
type reportTablet struct{ id uint64 }

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
	if !waits || d.Epoch >= before.Epoch {
		r.latest[d.TabletId] = d
	}
	r.mu.Unlock()
	if !waits {
		r.root.Send(r.pid, &reportTablet{d.TabletId})
	}
}

func (r *reports) receive(c actor.Context) {
	m, ok := c.Message().(*reportTablet)
	if !ok {
		return
	}
	r.mu.Lock()
	d := r.latest[m.id]
	delete(r.latest, m.id)
	r.mu.Unlock()
	r.write(d)
}

// stop ends the actor after what it is writing.
func (r *reports) stop() error { return r.root.StopFuture(r.pid).Wait() }
