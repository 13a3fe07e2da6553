package peers

import (
	"context"
	"errors"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/node"
)

var column = percolator.Column{Table: "bench", Name: "c"}

// onNode is a node in this process.
type onNode struct{ node *node.Node }

func openPercolator(ctx context.Context, dir string) (subject, error) {
	cfg := node.DefaultConfig()
	cfg.Dir, cfg.Listen, cfg.HTTP, cfg.Insecure = dir, "127.0.0.1:0", "", true
	n, err := node.Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if err := n.DB().CreateTable(ctx, percolator.TableSpec{Name: column.Table}); err != nil {
		return nil, errors.Join(err, n.Close(ctx))
	}
	return &onNode{n}, nil
}

func (s *onNode) transact(ctx context.Context, key string) error {
	return s.node.DB().Transact(ctx, func(ctx context.Context, tx *percolator.Tx) error {
		if _, _, err := tx.Get(ctx, key, column); err != nil {
			return err
		}
		tx.Set(key, column, payload)
		return nil
	})
}

func (s *onNode) close(ctx context.Context) error { return s.node.Close(ctx) }
