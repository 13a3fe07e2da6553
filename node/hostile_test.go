package node_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/node"
	"github.com/percolator-go/percolator/store"
)

var cell = percolator.Column{Table: "t", Name: "c"}

// dial connects a remote client to the node and creates the table "t".
func dial(t *testing.T, n *node.Node) *percolator.DB {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	db, err := percolator.Dial(ctx, []string{n.Addr()}, percolator.ClientConfig{Insecure: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := db.CreateTable(ctx, percolator.TableSpec{Name: "t"}); err != nil {
		t.Fatal(err)
	}
	return db
}

func set(ctx context.Context, db *percolator.DB, row string, col percolator.Column,
	value []byte) error {
	return db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		tx.Set(row, col, value)
		return nil
	})
}

// TestLimits: a cell at every limit works end to end, local and remote; one byte more is refused
// with a typed error that names the limit.
func TestLimits(t *testing.T) {
	n := open(t, t.TempDir(), nil)
	remote := dial(t, n)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	long := func(n int) string { return strings.Repeat("x", n) }
	value := make([]byte, 4<<20)
	_, _ = rand.Read(value)
	for name, db := range map[string]*percolator.DB{"in process": n.DB(), "remote": remote} {
		t.Run(name, func(t *testing.T) {
			big := percolator.Column{Table: "t", Name: long(1 << 10)}
			if err := set(ctx, db, long(4<<10), big, value); err != nil {
				t.Fatalf("a cell at the limits: %v", err)
			}
			s, err := db.Snapshot(ctx)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = s.Close() }()
			got, ok, err := s.Get(ctx, long(4<<10), big)
			if err != nil || !ok || !bytes.Equal(got, value) {
				t.Fatalf("read back %d bytes, %v, %v", len(got), ok, err)
			}
			for what, err := range map[string]error{
				"row": set(ctx, db, long(4<<10+1), cell, nil),
				"column": set(ctx, db, "r", percolator.Column{Table: "t", Name: long(1<<10 + 1)},
					nil),
				"value": set(ctx, db, "r", cell, make([]byte, 4<<20+1)),
			} {
				if !errors.Is(err, percolator.ErrTooLarge) {
					t.Errorf("a %s over its limit: %v", what, err)
				}
			}
			if err := set(ctx, db, "r", percolator.Column{Table: "nowhere", Name: "c"},
				nil); !errors.Is(err, percolator.ErrNoTable) {
				t.Errorf("an unknown table: %v", err)
			}
		})
	}
}

// TestLargeTransaction: a transaction of many limit-sized values, far more than one message, is all
// or nothing.
func TestLargeTransaction(t *testing.T) {
	n := open(t, t.TempDir(), nil)
	db := dial(t, n)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	value := bytes.Repeat([]byte("v"), 3<<20)
	err := db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		for i := range 12 {
			tx.Set(fmt.Sprint(i), cell, value)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	s, err := n.DB().Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	for c, err := range s.Scan(ctx, percolator.Rows("t")) {
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(c.Value, value) {
			t.Fatalf("row %s holds %d bytes", c.Row, len(c.Value))
		}
		found++
	}
	if found != 12 {
		t.Errorf("%d cells of 12", found)
	}
}

// TestEveryByte: rows and columns of any bytes are stored, found and scanned in byte
// order, over the network too.
func TestEveryByte(t *testing.T) {
	db := dial(t, open(t, "", nil))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		for b := range 256 {
			odd := string([]byte{byte(b), 0, byte(b)})
			tx.Set(odd, percolator.Column{Table: "t", Name: odd}, []byte{byte(b)})
		}
		tx.Set("", percolator.Column{Table: "t", Name: ""}, nil)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	s, err := db.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	last, count := "", 0
	for c, err := range s.Scan(ctx, percolator.Rows("t")) {
		if err != nil {
			t.Fatal(err)
		}
		if count > 0 && c.Row <= last {
			t.Errorf("row %q after %q", c.Row, last)
		}
		if c.Row != c.Column.Name {
			t.Errorf("row %q has column %q", c.Row, c.Column.Name)
		}
		last = c.Row
		count++
	}
	if count != 257 {
		t.Errorf("%d cells of 257", count)
	}
}

// TestGarbageOnThePort: whatever is sent to the gRPC port, the node continues to serve.
func TestGarbageOnThePort(t *testing.T) {
	n := open(t, "", nil)
	db := dial(t, n)
	noise := make([]byte, 64<<10)
	_, _ = rand.Read(noise)
	preface := []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	for _, bytes := range [][]byte{noise, []byte("GET / HTTP/1.1\r\n\r\n"), preface,
		append(preface, noise...), {0}} {
		c, err := net.Dial("tcp", n.Addr())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write(bytes)
		_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		_, _ = io.Copy(io.Discard, c)
		_ = c.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := set(ctx, db, "r", cell, []byte("still here")); err != nil {
		t.Fatal(err)
	}
}

// TestForeignDirectory: a directory that is not a node's, or is in use by another node, is refused
// with a reason.
func TestForeignDirectory(t *testing.T) {
	try := func(dir string) error {
		cfg := node.DefaultConfig()
		cfg.Dir, cfg.Listen, cfg.HTTP, cfg.Insecure = dir, "127.0.0.1:0", "", true
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		n, err := node.Open(ctx, cfg)
		if err == nil {
			err = errors.Join(errors.New("it was opened"), n.Close(ctx))
		}
		return err
	}
	foreign := t.TempDir()
	if err := os.WriteFile(filepath.Join(foreign, "thesis.tex"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := try(foreign); !errors.Is(err, store.ErrForeign) {
		t.Errorf("a foreign directory: %v", err)
	}
	held := t.TempDir()
	open(t, held, nil)
	if err := try(held); !errors.Is(err, store.ErrInUse) {
		t.Errorf("a directory in use: %v", err)
	}
}

// TestTimestampsFromTheFuture: a remote client cannot read, write, lock or judge with timestamps
// that the oracle has not granted, and its attempts leave nothing behind.
func TestTimestampsFromTheFuture(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	db := dial(t, open(t, "", nil))
	if err := set(ctx, db, "r", cell, []byte("1")); err != nil {
		t.Fatal(err)
	}
	client := handle.Client(db)
	table, err := client.TableID(ctx, "t")
	if err != nil {
		t.Fatal(err)
	}
	now, err := client.Timestamp(ctx)
	if err != nil {
		t.Fatal(err)
	}
	at := &pb.Cell{Table: uint32(table), Row: []byte("r"), Column: []byte("c")}
	writes := []*pb.CellWrite{{Cell: at, Kind: pb.Kind_KIND_PUT, Value: []byte("2")}}
	far := uint64(mvcc.TimestampAt(now.Millis() + 365*24*3600*1000))
	for name, req := range map[string]*pb.TabletRequest{
		"read": {
			Op: &pb.TabletRequest_Get{Get: &pb.GetRequest{At: far, Cells: []*pb.Cell{at}}},
		},
		"prewrite": {
			Op: &pb.TabletRequest_Prewrite{
				Prewrite: &pb.PrewriteRequest{
					StartTs: far, Primary: at, Worker: &pb.Worker{}, Writes: writes,
				},
			},
		},
		"expiry": {
			Op: &pb.TabletRequest_Prewrite{
				Prewrite: &pb.PrewriteRequest{
					StartTs: uint64(now), Expiry: far, Primary: at, Worker: &pb.Worker{},
					Writes: writes,
				},
			},
		},
		"one phase": {
			Op: &pb.TabletRequest_OnePhase{
				OnePhase: &pb.OnePhaseRequest{StartTs: far, Writes: writes},
			},
		},
		"judge": {
			Op: &pb.TabletRequest_CheckTxnStatus{
				CheckTxnStatus: &pb.CheckTxnStatusRequest{
					Primary: at, StartTs: uint64(now), Now: far,
				},
			},
		},
	} {
		_, _, err := client.Send(ctx, wire.Position{Table: table, Row: "r"}, req)
		if !errors.Is(err, percolator.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := set(ctx, db, "r", cell, []byte("3")); err != nil {
		t.Errorf("the cell is not free: %v", err)
	}
}
