package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/node"
)

// onNode is a node with one table in one tablet.
type onNode struct {
	kind   string
	node   *node.Node
	db     *percolator.DB
	client *txn.Client
	tablet *pb.TabletDescriptor
	table  uint32
}

func beginNode(what string) func(context.Context, string) (subject, error) {
	return func(ctx context.Context, dir string) (subject, error) {
		cfg := node.DefaultConfig()
		cfg.Dir, cfg.Listen, cfg.HTTP, cfg.Insecure = dir, "127.0.0.1:0", "", true
		n, err := node.Open(ctx, cfg)
		if err != nil {
			return nil, err
		}
		s := &onNode{kind: what, node: n, db: n.DB()}
		if err := s.prepare(ctx); err != nil {
			return nil, errors.Join(err, n.Close(ctx))
		}
		return s, nil
	}
}

func (s *onNode) prepare(ctx context.Context) error {
	transport := handle.Client(s.db).Transport()
	t, err := transport.CreateTable(ctx, &pb.CreateTableRequest{Name: "bench"})
	if err != nil {
		return err
	}
	s.table = t.Id
	d, err := transport.Locate(ctx, mvcc.TableID(t.Id), "", 1)
	if err != nil {
		return err
	}
	s.tablet = d[0]
	s.client = txn.NewClient(transport, txn.Config{TwoPhaseOnly: s.kind == twoPhase})
	s.db = handle.NewDB(s.client)
	if s.kind != readTxn && s.kind != rawGet {
		return nil
	}
	for caller := range 512 {
		if err := s.fill(ctx, caller); err != nil {
			return err
		}
	}
	return nil
}

const readKeys = 20

func (s *onNode) fill(ctx context.Context, caller int) error {
	if s.kind == readTxn {
		return s.db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
			for i := range readKeys {
				tx.Set(row(caller, i), column, payload)
			}
			return nil
		})
	}
	w := &pb.RawWriteRequest{}
	for i := range readKeys {
		w.Writes = append(w.Writes, &pb.CellWrite{
			Cell: s.cell(caller, i), Kind: pb.Kind_KIND_PUT, Value: payload,
		})
	}
	return s.send(ctx, &pb.TabletRequest{Op: &pb.TabletRequest_RawWrite{RawWrite: w}})
}

var column = percolator.Column{Table: "bench", Name: "c"}

func (s *onNode) cell(caller, i int) *pb.Cell {
	return &pb.Cell{Table: s.table, Row: key(caller, i), Column: []byte("c")}
}

func (s *onNode) send(ctx context.Context, req *pb.TabletRequest) error {
	r, err := s.client.Transport().Send(ctx, s.tablet, req)
	if err == nil && r.GetError() != nil {
		err = fmt.Errorf("%v", r.Error)
	}
	return err
}

func (s *onNode) do(ctx context.Context, caller, i int) error {
	switch s.kind {
	case rawPut:
		w := &pb.RawWriteRequest{
			Writes: []*pb.CellWrite{
				{Cell: s.cell(caller, i%keysPerCaller), Kind: pb.Kind_KIND_PUT, Value: payload},
			},
		}
		return s.send(ctx, &pb.TabletRequest{Op: &pb.TabletRequest_RawWrite{RawWrite: w}})
	case rawGet:
		g := &pb.RawGetRequest{Cells: []*pb.Cell{s.cell(caller, i%readKeys)}}
		return s.send(ctx, &pb.TabletRequest{Op: &pb.TabletRequest_RawGet{RawGet: g}})
	case readTxn:
		return s.db.Transact(ctx, func(ctx context.Context, tx *percolator.Tx) error {
			_, ok, err := tx.Get(ctx, row(caller, i%readKeys), column)
			if err == nil && !ok {
				err = errors.New("read found no cell in a row that was written")
			}
			return err
		})
	default:
		return s.db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
			tx.Set(row(caller, i%keysPerCaller), column, payload)
			return nil
		})
	}
}

// batches returns the operations per batch of the table's tablet, and per synced commit of the store.
func (s *onNode) batches() (tablet, log float64) {
	status := s.node.Status()
	for _, t := range status.Tablets {
		if t.GetTablet().GetTabletId() != s.tablet.TabletId || t.Batches == 0 {
			continue
		}
		tablet = float64(t.Reads+t.Mutations) / float64(t.Batches)
		if t.Mutations > t.Reads {
			log = float64(t.Mutations) / float64(max(status.LogBatches, 1))
		}
	}
	return tablet, log
}

func (s *onNode) close() error {
	return errors.Join(s.client.Close(), s.node.Close(context.Background()))
}

// key and row return the row of a caller's operation i, as bytes and as a string, with one
// allocation each.
func key(caller, i int) []byte { return appendKey(make([]byte, 0, keyRoom), caller, i) }

func row(caller, i int) string {
	var room [keyRoom]byte
	return string(appendKey(room[:0], caller, i))
}

const keyRoom = 24

func appendKey(b []byte, caller, i int) []byte {
	b = strconv.AppendInt(append(b, 'k'), int64(caller), 10)
	return strconv.AppendInt(append(b, '/'), int64(i), 10)
}
