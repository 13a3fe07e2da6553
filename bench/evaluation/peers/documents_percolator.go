package peers

import (
	"context"
	"errors"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/node"
)

var (
	documentText    = percolator.Column{Table: "documents", Name: "text"}
	documentCluster = percolator.Column{Table: "documents", Name: "cluster"}
	keyDocument     = percolator.Column{Table: "keys", Name: "document"}
)

// documentNode is a node in this process, with the observer of documents.
type documentNode struct{ node *node.Node }

// openDocuments returns a function that opens a node whose observer handles batches of this size.
func openDocuments(batch int) func(ctx context.Context, dir string) (clusterer, error) {
	return func(ctx context.Context, dir string) (clusterer, error) {
		cfg := node.DefaultConfig()
		cfg.Dir, cfg.Listen, cfg.HTTP, cfg.Insecure = dir, "127.0.0.1:0", "", true
		cfg.Observers = func(r *percolator.Registry) {
			if batch == 1 {
				r.Strong("cluster", documentText, clusterDocument)
				return
			}
			r.StrongBatch("cluster", documentText, clusterDocuments, percolator.Batch(batch),
				percolator.Concurrency(batchesAtOnce))
		}
		n, err := node.Open(ctx, cfg)
		if err != nil {
			return nil, err
		}
		if err := n.DB().CreateTable(ctx, percolator.TableSpec{Name: keyDocument.Table}); err != nil {
			return nil, errors.Join(err, n.Close(ctx))
		}
		return &documentNode{n}, nil
	}
}

func clusterDocument(ctx context.Context, tx *percolator.Tx, n percolator.Notification) error {
	return clusterDocuments(ctx, tx, []percolator.Notification{n})
}

// clusterDocuments is the observer.
func clusterDocuments(ctx context.Context, tx *percolator.Tx,
	changes []percolator.Notification) error {
	cells := make([]percolator.CellKey, 0, documentKeys*len(changes))
	for _, n := range changes {
		for _, k := range keysOf(n.Row) {
			cells = append(cells, percolator.CellKey{Row: k, Column: keyDocument})
		}
	}
	found, err := tx.GetMulti(ctx, cells...)
	if err != nil {
		return err
	}
	known := make(map[string]string, len(cells))
	for _, c := range found {
		known[c.Row] = string(c.Value)
	}
	for i, n := range changes {
		of := []byte(clusterOf(n.Row, known))
		tx.Set(n.Row, documentCluster, of)
		for _, c := range cells[documentKeys*i : documentKeys*(i+1)] {
			tx.Set(c.Row, c.Column, of)
		}
	}
	return nil
}

func (s *documentNode) load(ctx context.Context, names []string, text []byte) error {
	return s.node.DB().Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		for _, name := range names {
			tx.Set(name, documentText, text)
		}
		return nil
	})
}

func (s *documentNode) wait(ctx context.Context) error { return s.node.DB().WaitIdle(ctx) }

func (s *documentNode) count(ctx context.Context) (n int, err error) {
	snapshot, err := s.node.DB().Snapshot(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, snapshot.Close()) }()
	for _, err := range snapshot.Scan(ctx, percolator.Rows(documentCluster.Table),
		documentCluster) {
		if err != nil {
			return 0, err
		}
		n++
	}
	return n, nil
}

func (s *documentNode) cpu() time.Duration { return 0 } // all is in this process

func (s *documentNode) close(ctx context.Context) error { return s.node.Close(ctx) }
