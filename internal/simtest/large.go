package simtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"golang.org/x/sync/errgroup"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/node"
)

// LargeOptions configure a simulation of a large cluster at rest.
type LargeOptions struct {
	Seed    uint64
	Nodes   int
	Tablets int           // of a table without rows
	Window  time.Duration // of the measurement, in virtual time
}

// LargeFigures are what the nodes of a large cluster send each other, per second of virtual time,
// and how long its phases took.
type LargeFigures struct {
	Nodes, Tablets int
	// Requests are those of all nodes to others, by kind: "support" (liveness), "survey" and "walk"
	// (scanners), "node_status" (placement and merger), "meta" (all operations of meta's tablet), …
	Requests map[string]float64
	Batches  float64
	Bytes    float64
	Raft     float64       // messages of Raft groups
	Started  time.Duration // virtual: from the first node to the last one that serves
	Spread   time.Duration // from the creation of the table to three replicas of all tablets
	Rested   time.Duration // from the creation of the table until placement had moved nothing for 10 s
	Failover time.Duration // from the deaths of a tenth of the nodes until all tablets accept writes
}

// Large simulates a cluster. It must be called in a bubble of testing/synctest.
func Large(o LargeOptions) (f LargeFigures, err error) {
	f.Nodes, f.Tablets = o.Nodes, o.Tablets
	began := time.Now()
	c, err := New(Config{
		Seed: o.Seed, Nodes: o.Nodes, Detect: time.Second,
		Observers: func(r *percolator.Registry) {
			r.Strong("idle", largeColumn, func(context.Context, *percolator.Tx, percolator.Notification) error { return nil })
		},
		Tune: func(cfg *node.Config) {
			cfg.Labels = map[string]string{"zone": fmt.Sprint(indexOf(cfg.Listen) % racks)}
			cfg.History = time.Hour
			// A tablet that was moved may be moved again at once, so that placement comes to rest sooner.
			cfg.Placement.Rest = time.Second
		},
	})
	if err != nil {
		return f, err
	}
	f.Started = time.Since(began)
	defer func() { err = errors.Join(err, c.Close()) }()
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	_, db := c.Client(0)
	began = time.Now()
	spec := percolator.TableSpec{Name: largeColumn.Table}
	for i := 1; i < o.Tablets; i++ {
		spec.SplitKeys = append(spec.SplitKeys, fmt.Sprintf("row/%08d", i))
	}
	if err := db.CreateTable(ctx, spec); err != nil {
		return f, err
	}
	for !c.replicated(ctx, min(3, o.Nodes)) {
		if !sleep(ctx, time.Second) {
			return f, fmt.Errorf("simtest: not every tablet has its replicas: %w", ctx.Err())
		}
	}
	f.Spread = time.Since(began)
	if err := c.measureAtRest(ctx, &f, o.Window); err != nil {
		return f, err
	}
	f.Rested = time.Since(began) - o.Window
	f.Failover, err = c.rack(ctx, o)
	return f, err
}

const (
	// restPatience limits the time for which placement may move tablets.
	restPatience = 4 * time.Minute
	// restLook is the time without a move after which the cluster is at rest, longer than placement's
	// interval.
	restLook = 10 * time.Second
)

// measureAtRest waits until the cluster is at rest and measures a window in which it stays so.
func (c *Cluster) measureAtRest(ctx context.Context, f *LargeFigures, window time.Duration) error {
	for began := time.Now(); time.Since(began) < restPatience; {
		if c.measure(ctx, f, restLook); f.moves() > 0 {
			continue
		}
		if c.measure(ctx, f, window); f.moves() == 0 {
			return nil
		}
	}
	return fmt.Errorf("simtest: %d nodes, %d tablets: placement still makes %.1f changes/s after %v",
		f.Nodes, f.Tablets, f.moves(), restPatience)
}

// moves returns the number of steps of placement per second.
func (f *LargeFigures) moves() float64 {
	return f.Requests["change_replicas"] + f.Requests["transfer_leader"]
}

var largeColumn = percolator.Column{Table: "large", Name: "c"}

// racks is the number of zones over which the nodes are spread; a tablet's replicas are in
// different ones.
const racks = 10

// rack kills the nodes of one rack at once, and returns the time until a client can write
// to every tablet.
func (c *Cluster) rack(ctx context.Context, o LargeOptions) (time.Duration, error) {
	began := time.Now()
	var dying errgroup.Group
	for i := 1; i < o.Nodes; i += racks { // node 0, which serves the client, stays
		m := c.list()[i]
		dying.Go(func() error { return m.crash(false) })
	}
	_, db := c.Client(0)
	var writing errgroup.Group
	writing.SetLimit(256)
	for i := range o.Tablets {
		writing.Go(func() error {
			return db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
				tx.Set(fmt.Sprintf("row/%08d", i), largeColumn, nil)
				return nil
			})
		})
	}
	err := writing.Wait()
	took := time.Since(began)
	return took, errors.Join(err, dying.Wait())
}

// measure counts what is sent for the duration.
func (c *Cluster) measure(ctx context.Context, f *LargeFigures, window time.Duration) {
	f.Requests, f.Batches, f.Bytes, f.Raft = map[string]float64{}, 0, 0, 0
	c.network.set(func(n *network) {
		n.tally = func(b *wire.PeerBatch) { f.add(b) }
	})
	sleep(ctx, window)
	c.network.set(func(n *network) { n.tally = nil })
	s := window.Seconds()
	f.Batches, f.Bytes, f.Raft = f.Batches/s, f.Bytes/s, f.Raft/s
	for kind := range f.Requests {
		f.Requests[kind] /= s
	}
}

// add counts a batch.
func (f *LargeFigures) add(b *wire.PeerBatch) {
	f.Batches++
	f.Bytes += float64(proto.Size(b))
	f.Raft += float64(len(b.GetRaft()))
	for _, r := range b.GetRequests() {
		f.Requests[kindOf(r)]++
	}
}

// kindOf returns the kind of a request: the name of its field and, of a tablet's, of the operation.
func kindOf(r *wire.PeerRequest) string {
	kind := chosen(r.ProtoReflect(), "body")
	t := r.GetTablet()
	switch {
	case r.GetStatus() != nil:
		return "node_status" // "status" is that of a tablet
	case t == nil:
		return kind
	case t.TabletId == cluster.MetaTablet:
		return "meta"
	default:
		return chosen(t.ProtoReflect(), "op")
	}
}

// chosen returns the name of the field that is set of a message's oneof.
func chosen(m protoreflect.Message, oneof protoreflect.Name) string {
	if field := m.WhichOneof(m.Descriptor().Oneofs().ByName(oneof)); field != nil {
		return string(field.Name())
	}
	return "other"
}
