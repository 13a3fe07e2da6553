package node

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/zeebo/xxh3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/percolator-go/percolator/actors/tablet/replicas"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// stuckOwner has replicas whose actors cannot be stopped.
type stuckOwner struct{ replicas.Owner }

func (stuckOwner) OpenReplica(uint64, bool) error { return nil }
func (stuckOwner) StopReplica(uint64) error       { return errors.New("the disk is full") }

// TestClosedReplicaIsSeen: a replica that stays closed is reported by /readyz and the metrics until
// it runs again.
func TestClosedReplicaIsSeen(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cfg := DefaultConfig()
	cfg.Listen, cfg.HTTP, cfg.Insecure, cfg.Store.InMemory = "127.0.0.1:0", "", true, true
	n, err := Open(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := n.Close(ctx); err != nil {
			t.Error(err)
		}
	}()
	seen := func(closed float64) {
		t.Helper()
		values, err := n.Metrics()
		if got := values["percolator_replicas_closed"]; got != closed || err != nil {
			t.Errorf("%v replicas are closed, want %v, %v", got, closed, err)
		}
		ready := n.ready(ctx)
		if (ready == nil) != (closed == 0) || ready != nil &&
			!strings.Contains(ready.Error(), "tablet 2 (one of 1 closed)") {
			t.Errorf("%v closed: ready reports %v", closed, ready)
		}
	}
	seen(0)
	open := n.tablets.replicas
	stuck := replicas.New(stuckOwner{}, n.store, n.tablets.logs, n.identity.NodeID, n.cfg.Logger)
	defer stuck.Close()
	if err := stuck.Start(func([]uint64) {}); err != nil {
		t.Fatal(err)
	}
	answers := make(chan *wire.SnapshotAnswer, 1)
	stuck.Chunk(emptySnapshot(t, n.router.Descriptor(2)), func(a *wire.SnapshotAnswer) {
		answers <- a
	})
	if a := <-answers; !strings.Contains(a.GetRefused(), "the disk is full") {
		t.Fatal("the snapshot is not refused for want of room:", a)
	}
	n.tablets.replicas, n.exporter.Tablets.Replicas = stuck, stuck
	seen(1)
	n.tablets.replicas, n.exporter.Tablets.Replicas = open, open
	seen(0)
}

// TestStaleReplicaIsSeen: the metrics count a replica that lacks entries it has acknowledged.
func TestStaleReplicaIsSeen(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cfg := DefaultConfig()
	cfg.Listen, cfg.HTTP, cfg.Insecure, cfg.Store.InMemory = "127.0.0.1:0", "", true, true
	n, err := Open(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := n.Close(ctx); err != nil {
			t.Error(err)
		}
	}()
	n.tablets.Stale(2)
	for {
		values, err := n.Metrics()
		if err != nil {
			t.Fatal(err)
		}
		if values["percolator_replicas_stale"] == 1 && values["percolator_replicas_found_stale_total"] == 1 {
			return
		}
		if txn.Sleep(ctx, 10*time.Millisecond) != nil {
			t.Fatalf("%v replicas are stale, %v were found", values["percolator_replicas_stale"],
				values["percolator_replicas_found_stale_total"])
		}
	}
}

// emptySnapshot returns a snapshot of the tablet without rows, in one piece, for its first replica.
func emptySnapshot(t *testing.T, d *pb.TabletDescriptor) *wire.SnapshotChunk {
	t.Helper()
	must := func(m proto.Message) []byte {
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	const index, term = 1 << 40, 1 << 20
	to := d.Replicas[0].ReplicaId
	conf := &raftpb.ConfState{Voters: []uint64{to}}
	message := &raftpb.Message{
		Type: raftpb.MsgSnap.Enum(), To: &to, From: proto.Uint64(90),
		Snapshot: &raftpb.Snapshot{
			Metadata: &raftpb.SnapshotMetadata{
				Index: proto.Uint64(index), Term: proto.Uint64(term), ConfState: conf,
			},
		},
	}
	c := &wire.SnapshotChunk{
		TabletId: d.TabletId, ToReplica: to, Id: "s", Last: true, Checksum: xxh3.New().Sum64(),
		Header: &wire.SnapshotHeader{
			Message: must(message), Index: index, Term: term,
			State: must(&wire.TabletState{
				Tablet: d, Catalogue: &pb.Catalogue{}, ConfState: must(conf),
			}),
		},
	}
	c.Total = xxh3.Hash(binary.BigEndian.AppendUint64(nil, c.Checksum))
	return c
}
