package tablet

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// wait polls until ok, for at most 30 s.
func (g *cluster) wait(what string, ok func() bool) {
	g.tb.Helper()
	deadline := time.After(30 * time.Second)
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	for !ok() {
		select {
		case <-look.C:
		case <-deadline:
			for id := range g.nodes {
				g.tb.Logf("node %d: %v", id, g.status(id, groupTablet))
			}
			g.tb.Fatalf("after 30 s still not: %s", what)
		}
	}
}

// status returns the status of the replica on a node; nil if there is none.
func (g *cluster) status(node, tablet uint64) *pb.StatusResponse {
	p := g.nodes[node].port(tablet)
	if p == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	r, err := p.Ask(ctx, &pb.TabletRequest{
		Op: &pb.TabletRequest_Status{Status: &pb.StatusRequest{}},
	}, true)
	if err != nil {
		return nil
	}
	return r.GetStatus()
}

// leader waits until a node that is not excepted leads the tablet.
func (g *cluster) leader(tablet uint64, except ...uint64) (node uint64) {
	g.tb.Helper()
	g.wait("another leader", func() bool {
		for id := range g.nodes {
			excepted := false
			for _, e := range except {
				excepted = excepted || e == id
			}
			if s := g.status(id, tablet); !excepted && s.GetLeader() {
				node = id
				return true
			}
		}
		return false
	})
	return node
}

// at sends one request to the replica on one node.
func (g *cluster) at(node, tablet uint64, req *pb.TabletRequest) *pb.TabletResponse {
	g.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	p := g.nodes[node].port(tablet)
	if p == nil {
		return wire.Failure(pb.Error_CODE_NOT_LEADER, "nothing here")
	}
	r, err := p.Ask(ctx, req, true)
	if err != nil {
		return wire.Failure(pb.Error_CODE_UNKNOWN, "%v", err)
	}
	return r
}

// try sends the request to each leader until an answer tells its outcome.
func (g *cluster) try(tablet uint64, req *pb.TabletRequest,
	except ...uint64) (r *pb.TabletResponse) {
	g.tb.Helper()
	g.wait("an answer", func() bool {
		r = g.at(g.leader(tablet, except...), tablet, req)
		switch r.GetError().GetCode() {
		case pb.Error_CODE_NOT_LEADER, pb.Error_CODE_NOT_PROPOSED, pb.Error_CODE_UNAVAILABLE,
			pb.Error_CODE_OVERLOADED:
			return false
		}
		return true
	})
	return r
}

// do is try for requests that must succeed.
func (g *cluster) do(tablet uint64, req *pb.TabletRequest, except ...uint64) *pb.TabletResponse {
	g.tb.Helper()
	r := g.try(tablet, req, except...)
	if r.Error != nil {
		g.tb.Fatalf("%T: %v", req.Op, r.Error)
	}
	return r
}

// write commits a value; it may be repeated, for its start timestamp stays the same.
func (g *cluster) write(tablet uint64, row, value string, except ...uint64) {
	g.tb.Helper()
	req := onePhaseOf(g.take(1), put(row, value))
	g.wait("a commit", func() bool {
		r := g.try(tablet, req, except...)
		switch r.GetError().GetCode() {
		case pb.Error_CODE_UNKNOWN, pb.Error_CODE_WRONG_TABLET: // the latter by a removed leader
			return false
		}
		s := r.GetMutation().GetStatus()
		if r.Error != nil || (s != pb.Status_STATUS_OK && s != pb.Status_STATUS_COMMITTED) {
			g.tb.Fatalf("write %s: %v", row, r)
		}
		return true
	})
}

// read returns the newest value of a row.
func (g *cluster) read(tablet uint64, row string, except ...uint64) string {
	g.tb.Helper()
	return string(g.do(tablet, getOf(g.take(1), row), except...).GetGet().Results[0].Value)
}

// even waits until all nodes have applied the same entries of the tablet, and returns the index.
func (g *cluster) even(tablet uint64, nodes ...uint64) (index uint64) {
	g.tb.Helper()
	g.wait("all have applied the same", func() bool {
		index = g.status(nodes[0], tablet).GetAppliedIndex()
		for _, id := range nodes {
			if s := g.status(id, tablet); s == nil || s.AppliedIndex != index ||
				s.LastIndex != index {
				return false
			}
		}
		return true
	})
	return index
}

// stored returns the newest value of a row in a node's own store.
func (g *cluster) stored(node uint64, row string) string {
	g.tb.Helper()
	snap := g.nodes[node].store.Snap()
	defer snap.Close()
	w, _, err := snap.Newest(mvcc.Cell{Table: 16, Row: row, Column: "c"})
	if err != nil {
		g.tb.Fatal(err)
	}
	return string(w.Value)
}

func mustUnmarshal(data []byte, m proto.Message) bool {
	if err := proto.Unmarshal(data, m); err != nil {
		panic(err)
	}
	return true
}

func splitOf(row string, right uint64) *pb.TabletRequest {
	return &pb.TabletRequest{
		Op: &pb.TabletRequest_Split{
			Split: &pb.SplitRequest{Table: 16, Row: []byte(row), NewTabletId: right},
		},
	}
}
