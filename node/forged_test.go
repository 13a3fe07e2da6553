package node_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/notify"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/node"
)

// TestNobodyForgesAcknowledgments: a client's acknowledgment of a change is refused, in one phase
// and in two, and the observer runs. If it were accepted, the observer would never see the change.
func TestNobodyForgesAcknowledgments(t *testing.T) {
	var runs atomic.Int64
	n := open(t, "", func(cfg *node.Config) {
		cfg.Observers = func(r *percolator.Registry) {
			r.Strong("o", cell, func(context.Context, *percolator.Tx,
				percolator.Notification) error {
				runs.Add(1)
				return nil
			})
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	db := dial(t, n)
	controlObserver(t, n, &pb.ControlObserverRequest{Name: "o", Paused: proto.Bool(true)})
	if err := set(ctx, db, "r", cell, []byte("v")); err != nil {
		t.Fatal(err)
	}
	hostile := handle.Client(db)
	id, err := hostile.TableID(ctx, "t")
	if err != nil {
		t.Fatal(err)
	}
	ack := mvcc.Cell{Table: id, Row: "r", Class: mvcc.ClassAck, Column: "o"}
	for _, beside := range []string{"", "elsewhere"} {
		_, err := hostile.Run(ctx, txn.Options{}, func(ctx context.Context, tx *txn.Txn) error {
			start, err := tx.Start(ctx)
			if err != nil {
				return err
			}
			tx.SetCell(ack, notify.EncodeAck(start, 0))
			if beside != "" {
				tx.Set(txn.Key{Table: "t", Row: beside, Column: "other"}, make([]byte, 1<<20))
			}
			return nil
		})
		if !errors.Is(err, percolator.ErrPermission) {
			t.Errorf("FORGED-ACK: a client's acknowledgment was answered %v", err)
		}
	}
	controlObserver(t, n, &pb.ControlObserverRequest{Name: "o", Paused: proto.Bool(false)})
	if err := n.DB().WaitIdle(ctx); err != nil {
		t.Fatal(err)
	}
	if runs.Load() != 1 {
		t.Errorf("FORGED-ACK: the observer ran %d times", runs.Load())
	}
}

// TestNoRawClients: a client's raw write is refused and leaves nothing.
func TestNoRawClients(t *testing.T) {
	n := open(t, "", nil)
	db := dial(t, n)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	id, err := handle.Client(db).TableID(ctx, "t")
	if err != nil {
		t.Fatal(err)
	}
	c := &pb.Cell{Table: uint32(id), Row: []byte("r"), Column: []byte("c")}
	write := &pb.RawWriteRequest{
		Writes: []*pb.CellWrite{{Cell: c, Kind: pb.Kind_KIND_PUT, Value: []byte("v")}},
	}
	at := wire.Position{Table: id, Row: "r"}
	_, _, err = handle.Client(db).Send(ctx, at,
		&pb.TabletRequest{Op: &pb.TabletRequest_RawWrite{RawWrite: write}})
	if !errors.Is(err, percolator.ErrPermission) {
		t.Errorf("a client's raw write: %v", err)
	}
	get := &pb.TabletRequest{
		Op: &pb.TabletRequest_RawGet{RawGet: &pb.RawGetRequest{Cells: []*pb.Cell{c}}},
	}
	r, _, err := handle.Client(n.DB()).Send(ctx, at, get)
	if err != nil || r.GetRawGet().GetValues()[0].GetFound() {
		t.Errorf("it has left %v, %v", r, err)
	}
}

// TestLeasesOfOthers: a client cannot end the lease of another client that holds history under the
// same name.
func TestLeasesOfOthers(t *testing.T) {
	n := open(t, "", shortHistory)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	victim, hostile := handle.Client(dial(t, n)).Transport(), handle.Client(dial(t, n)).Transport()
	now, _, err := victim.Timestamps(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	lease := &pb.HoldHistoryRequest{
		Holder: "export", Token: []byte("secret"), Oldest: uint64(now), TtlMs: 60_000,
	}
	if _, err := victim.HoldHistory(ctx, lease); err != nil {
		t.Fatal(err)
	}
	if _, err := hostile.HoldHistory(ctx,
		&pb.HoldHistoryRequest{Holder: "export", Token: []byte("?")}); err == nil {
		t.Error("another's lease was released")
	}
	later := &pb.HoldHistoryRequest{
		Holder: "export", Token: []byte("?"), Oldest: uint64(now) + 1, TtlMs: 60_000,
	}
	if _, err := hostile.HoldHistory(ctx, later); err != nil {
		t.Error(err)
	}
	if h := history(ctx, t, n); h.OldestHold != uint64(now) || h.Holds != 2 {
		t.Errorf("history is held at %d by %d, want %d by 2", h.OldestHold, h.Holds, now)
	}
}

// history returns the node's report on history.
func history(ctx context.Context, t *testing.T, n *node.Node) *pb.HistoryStatus {
	t.Helper()
	var h *pb.HistoryStatus
	until(ctx, t, n, "leases are seen", func(s *pb.NodeStatusResponse) bool {
		h = s.History
		return h.GetHolds() > 1
	})
	return h
}
