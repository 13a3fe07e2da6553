package cli

import (
	"context"
	"errors"
	"fmt"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
)

// metaName is how the meta tablet's own table is called in output.
const metaName = "(meta)"

// names translates between tables and their ids.
type names struct {
	ids   map[string]mvcc.TableID
	texts map[uint32]string
}

// loadNames reads the tables from meta, dropped ones too: locks of theirs may still be about.
func loadNames(ctx context.Context, s *session) (*names, error) {
	tables, err := s.transport.Tables(ctx)
	if err != nil {
		return nil, err
	}
	n := &names{ids: map[string]mvcc.TableID{}, texts: map[uint32]string{uint32(mvcc.MetaTable): metaName}}
	for _, t := range tables {
		n.texts[t.Id] = t.Name
		if t.DroppedTs == 0 {
			n.ids[t.Name] = mvcc.TableID(t.Id)
		}
	}
	return n, nil
}

// namesIfKnown is loadNames for what can be shown with numbers for names while meta does
// not answer; nil then.
func (r *run) namesIfKnown(ctx context.Context, s *session) (*names, error) {
	asking, cancel := context.WithTimeout(ctx, nodesPatience)
	defer cancel()
	n, err := loadNames(asking, s)
	var refused *txn.ServerError
	switch {
	case err == nil:
		return n, nil
	case ctx.Err() != nil:
		return nil, err
	case asking.Err() != nil, errors.Is(err, percolator.ErrUnavailable), errors.As(err, &refused) && refused.Code == pb.Error_CODE_UNAVAILABLE:
		r.note("tables are shown by their numbers, for meta does not answer: %v", err)
		return nil, nil
	}
	return nil, err
}

// table is the id of a table by name.
func (n *names) table(name string) (mvcc.TableID, error) {
	id, ok := n.ids[name]
	if !ok {
		return 0, fmt.Errorf("%w: %s", percolator.ErrNoTable, printable(name))
	}
	return id, nil
}

// byID is the name of a table, or its number where it has none (yet, or any more).
func (n *names) byID(id uint32) string {
	if n == nil {
		return fmt.Sprintf("table %d", id)
	}
	if name, ok := n.texts[id]; ok {
		return printable(name)
	}
	return fmt.Sprintf("table %d", id)
}
