// Package clusterscale measures what grows with the number of nodes and tablets: on the product's own
// components without a cluster, the tablet map and a placement pass, and by simulation, what the
// nodes send each other. docs/operating/scale.md computes from these unit costs where a cluster ends.
package clusterscale

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/percolator-go/percolator/actors/placement"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/bench/evaluation/harness"
	"github.com/percolator-go/percolator/cluster/route"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// Measurements returns the measurement of this package.
func Measurements() []harness.Measurement {
	return []harness.Measurement{{
		Name: "clusterscale", Title: "Scale of the cluster, by components and simulation", Budget: 3 * time.Minute, Run: run,
	}}
}

// size is a cluster.
type size struct{ nodes, tablets int }

func (s size) String() string { return fmt.Sprintf("%d nodes, %d tablets", s.nodes, s.tablets) }

func run(ctx context.Context, r *harness.Run) error {
	return errors.Join(components(r), simulate(ctx, r))
}

// components measures parts of a node on the state of a whole cluster.
func components(r *harness.Run) error {
	sizes := []size{{10, 10_000}, {100, 100_000}, {300, 300_000}}
	if r.Smoke {
		sizes = []size{{10, 1000}}
	}
	for _, s := range sizes {
		state := stateOf(s)
		if err := measureMap(r, s, state); err != nil {
			return err
		}
		if err := measurePlacement(r, s, state); err != nil {
			return err
		}
	}
	r.Note("The page docs/operating/scale.md computes from these figures what a larger cluster costs.")
	return nil
}

// stateOf returns a cluster at rest: three replicas of each tablet on consecutive nodes, in ten zones.
func stateOf(s size) *placement.State {
	state := &placement.State{Replicas: 3}
	for i := range s.nodes {
		state.Nodes = append(state.Nodes, placement.Node{
			ID: uint64(i + 1), Zone: fmt.Sprint(i % 10), State: pb.NodeState_NODE_STATE_ACTIVE, Alive: true,
		})
	}
	for i := range s.tablets {
		d := &pb.TabletDescriptor{TabletId: uint64(i + 1), Epoch: 7}
		if i > 0 {
			d.StartTable, d.StartRow = uint32(firstTable), []byte(rowOf(i))
		}
		if d.EndUnbounded = i == s.tablets-1; !d.EndUnbounded {
			d.EndTable, d.EndRow = uint32(firstTable), []byte(rowOf(i+1))
		}
		status := &pb.StatusResponse{Leader: true, Term: 3, LastIndex: 1000, SizeBytes: 64 << 20, Tablet: d}
		for k := range 3 {
			replica := &pb.Replica{ReplicaId: uint64(k + 1), NodeId: uint64((i+k)%s.nodes + 1)}
			d.Replicas = append(d.Replicas, replica)
			status.Replicas = append(status.Replicas, &pb.ReplicaProgress{Replica: replica, Active: true, Match: 1000})
		}
		status.NodeId = d.Replicas[0].NodeId
		state.Tablets = append(state.Tablets, placement.Tablet{D: d, Status: status})
	}
	return state
}

const firstTable = mvcc.FirstUserTable

// rowOf returns the first row of a tablet.
func rowOf(tablet int) string { return fmt.Sprintf("row/%08d", tablet) }

// measureMap decodes the whole tablet map, as a node that refreshes it does, and looks a row up.
func measureMap(r *harness.Run, s size, state *placement.State) error {
	var encoded [][]byte
	bytes, statuses := 0, 0
	for _, t := range state.Tablets {
		b, err := proto.Marshal(t.D)
		if err != nil {
			return err
		}
		encoded = append(encoded, b)
		bytes, statuses = bytes+len(b), statuses+proto.Size(t.Status)
	}
	const table = "tablet map"
	r.Value(table, s.String(), "MB", float64(bytes)/1e6)
	r.Value(table, s.String(), "MB of leaders' statuses", float64(statuses)/1e6)
	for range r.Rounds {
		began := time.Now()
		all := make([]*pb.TabletDescriptor, 0, len(encoded))
		for _, b := range encoded {
			d := &pb.TabletDescriptor{}
			if err := proto.Unmarshal(b, d); err != nil {
				return err
			}
			all = append(all, d)
		}
		present, _ := route.Present(all)
		if len(present) != len(all) {
			return fmt.Errorf("%v: %d of %d tablets are present", s, len(present), len(all))
		}
		router := route.NewRouter()
		for _, d := range present {
			router.Update(d)
		}
		if found := router.Locate(firstTable, rowOf(s.tablets/2), 1); len(found) != 1 || found[0].TabletId != uint64(s.tablets/2+1) {
			return fmt.Errorf("%v: the first row of tablet %d is in %v", s, s.tablets/2+1, found)
		}
		r.Value(table, s.String(), "s to read", time.Since(began).Seconds())
	}
	return nil
}

// measurePlacement plans at rest, after one node has joined, and after a tenth of the nodes is gone.
func measurePlacement(r *harness.Run, s size, state *placement.State) error {
	const table = "placement"
	plan := func(what string, steps func(n int) bool) error {
		began := time.Now()
		p := placement.Make(state)
		r.Value(table, s.String(), "s "+what, time.Since(began).Seconds())
		if !steps(len(p.Steps)) {
			return fmt.Errorf("%v, %s: placement plans %d steps; want none at rest, else some", s, what, len(p.Steps))
		}
		return nil
	}
	for range r.Rounds {
		if err := plan("at rest", func(n int) bool { return n == 0 }); err != nil {
			return err
		}
		joined := placement.Node{ID: uint64(s.nodes + 1), Zone: "10", State: pb.NodeState_NODE_STATE_ACTIVE, Alive: true}
		state.Nodes = append(state.Nodes, joined)
		err := plan("a node more", func(n int) bool { return n > 0 })
		state.Nodes = state.Nodes[:s.nodes]
		if err != nil {
			return err
		}
		set := func(gone bool) {
			for i := 0; i < s.nodes; i += 10 {
				state.Nodes[i].Alive, state.Nodes[i].Gone = !gone, gone
			}
		}
		set(true)
		err = plan("a rack gone", func(n int) bool { return n > 0 })
		set(false)
		if err != nil {
			return err
		}
	}
	return nil
}
