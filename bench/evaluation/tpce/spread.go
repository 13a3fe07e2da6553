package tpce

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/percolator-go/percolator/internal/txn"
)

// settling bounds the time in which leaders are spread before a measurement. A tablet rests for a
// minute between two moves.
const settling = 3 * time.Minute

// spread waits until every node leads about its share of the tablets.
func (s *onNodes) spread(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, settling)
	defer cancel()
	for {
		nodes, err := s.db.Admin().Nodes(ctx)
		even := err == nil && len(nodes) == s.layout.nodes
		for _, n := range nodes {
			even = even && n.Leaders+1 >= 2*tabletsEach // of two tables
		}
		if even {
			return nil
		}
		if late := txn.Sleep(ctx, 100*time.Millisecond); late != nil {
			return fmt.Errorf("tpce: leaders are not spread in time: %w\n%+v", errors.Join(err, late), nodes)
		}
	}
}
