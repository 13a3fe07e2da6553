package meta

import (
	"context"
	"errors"
	"slices"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/cluster/route"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// Splits and drops of tables, and what they share with creation (create.go). Calls run on the
// goroutines of clients' requests on any node, one at a time on each node (ddl), and of the
// splitter on the node that leads meta.

// Rows of tables: the counters of ids, and one row for each table and for each table being
// created.
const (
	rowNextTable   = "next/table"
	rowNextTablet  = "next/tablet"
	prefixTable    = "table/"
	prefixCreating = "creating/"
)

// Limits of one request: the bytes of a table's name, and its split keys, each of which creates a
// tablet. keepSplitKey keeps no further key of a table that has maxSplitKeys.
const (
	maxTableName = 255
	maxSplitKeys = 1024
)

// Schema creates, splits and drops tables.
type Schema struct {
	records
	router    *route.Router
	tablets   *TabletMap
	policy    *Policy
	observers *Observers // a drop removes those of the table
	ddl       ddlLock    // shared with observers
}

// Table returns a table's record, or nil if it does not exist.
func (s *Schema) Table(ctx context.Context, name string) (*pb.Table, error) {
	t, old, err := load[*pb.Table](ctx, s.records, prefixTable+name)
	if err != nil || old == nil {
		return nil, err
	}
	return t, nil
}

// existing is like Table, but returns CODE_NO_TABLE if the table does not exist.
func (s *Schema) existing(ctx context.Context, name string) (*pb.Table, error) {
	t, err := s.Table(ctx, name)
	if err == nil && t == nil {
		err = refuse(pb.Error_CODE_NO_TABLE, "there is no table %q", name)
	}
	return t, err
}

// Tables returns all tables in the order of names.
func (s *Schema) Tables(ctx context.Context) ([]*pb.Table, error) {
	return list[*pb.Table](ctx, s.records, prefixTable)
}

// Unfinished returns the tables being restored and those with pending split keys.
func (s *Schema) Unfinished(ctx context.Context) ([]*pb.Table, error) {
	tables, err := s.Tables(ctx)
	return slices.DeleteFunc(tables, func(t *pb.Table) bool {
		return t.Restoring == nil && len(t.PendingSplitKeys) == 0
	}), err
}

// DropTable removes the name of the table with the id and notifies all tablets, which then reject
// reads and writes of its cells. The id is never used again.
//
// It may be repeated after any failure: a drop that may not have reached all tablets is finished,
// and a table already dropped is no error, even if its name is in use again. With the id 0, for a
// caller that saw no table of that name, it finishes an earlier drop. CODE_NO_TABLE if the name
// and the id are not of one table.
func (s *Schema) DropTable(ctx context.Context, name string, id uint32) error {
	return s.observers.changeCatalogue(ctx, func(c *pb.Catalogue) ([]change, error) {
		if id != 0 && IsDropped(c, id) {
			return nil, nil // publishing it again reaches the remaining tablets
		}
		t, err := s.Table(ctx, name)
		if err != nil {
			return nil, err
		}
		if t == nil {
			return nil, s.finishableDrop(ctx, c, name)
		}
		if t.Id != id {
			return nil, refuse(pb.Error_CODE_NO_TABLE,
				"table %q has the id %d, not %d: list the tables again", name, t.Id, id)
		}
		value, err := encode(t)
		if err != nil {
			return nil, err
		}
		// The name is removed atomically with the catalogue's entries: remaining observers would
		// block those of a new table of the same name. DateDrops sets the timestamp.
		c.DroppedTables, c.DroppedTs = append(c.DroppedTables, t.Id), append(droppedTS(c), 0)
		c.RestoringTables = without(c.RestoringTables, t.Id)
		gone, err := s.observers.removeEntries(ctx, c, func(o *pb.ObserverInfo) bool {
			return o.Table == t.Id
		})
		if err != nil {
			return nil, err
		}
		// Atomically, too: a later table of the name must start without grants, and a list that
		// showed these would promise a protection that does not exist.
		ungranted, err := s.policy.withoutGrants(ctx, t.Id)
		if err != nil {
			return nil, err
		}
		dropped := change{row: droppedRow(t.Id), value: value}
		gone = append(append(gone, ungranted...), dropped)
		return append(gone, change{row: prefixTable + name, old: value}), nil
	})
}

// split creates a tablet boundary before (table, row). An existing one is no error. id is an
// unused id for the new tablet; 0 obtains one.
func (s *Schema) split(ctx context.Context, table mvcc.TableID, row string, id uint64) error {
	return retry(ctx, func() (bool, error) {
		held, err := s.router.Find(ctx, table, row, 1)
		// Meta's tablet map lags behind the tablets: look it up again.
		if err != nil || len(held) == 0 {
			return false, err
		}
		// The boundary exists already, made by an earlier attempt or another caller.
		if wire.StartOf(held[0]) == (wire.Position{Table: table, Row: row}) {
			return true, nil
		}
		// A new id for each attempt: if the last one was applied after all, its id is in use.
		fresh := id
		if id = 0; fresh == 0 {
			if fresh, err = s.nextIDs(ctx, rowNextTablet, cluster.FirstFreeTablet, 1); err != nil {
				return false, err
			}
		}
		r, err := s.send(ctx, held[0].TabletId, &pb.TabletRequest{Op: &pb.TabletRequest_Split{
			Split: &pb.SplitRequest{Table: uint32(table), Row: wire.Bytes(row), NewTabletId: fresh},
		}})
		switch {
		// Applied or not, the next attempt starts from the tablet's current state. WRONG_TABLET means
		// that another split moved the row to a different tablet.
		case errors.Is(err, route.ErrUnknown), codeOf(err) == pb.Error_CODE_WRONG_TABLET:
			return false, nil
		case err != nil:
			return false, err
		}
		for _, d := range []*pb.TabletDescriptor{r.GetSplit().GetLeft(), r.GetSplit().GetRight()} {
			if d == nil {
				continue
			}
			// This node's cache is updated at once; the others learn from meta or from the
			// tablets.
			s.router.Update(d)
			if err := s.tablets.Report(ctx, d); err != nil {
				return false, err
			}
		}
		return true, nil
	})
}

// SplitTablet creates a tablet boundary before row in the named table, which is not merged
// automatically if keepSplitKey has room for it. An existing one is no error.
func (s *Schema) SplitTablet(ctx context.Context, name, row string) error {
	t, err := s.existing(ctx, name)
	if err != nil {
		return err
	}
	if err := s.SplitAt(ctx, mvcc.TableID(t.Id), row); err != nil || row == "" {
		return err
	}
	return s.keepSplitKey(ctx, name, row)
}

// keepSplitKey adds the key to the table's requested split keys, which are not merged
// automatically. Beyond maxSplitKeys they are.
func (s *Schema) keepSplitKey(ctx context.Context, name, key string) error {
	return s.changeSplitKeys(ctx, name, func(keys [][]byte) [][]byte {
		if len(keys) >= maxSplitKeys || has(keys, key) {
			return keys
		}
		return append(keys, []byte(key))
	})
}

// forgetSplitKey removes the key from the table's requested split keys, so that the boundary may be
// merged automatically, and the key requested again.
func (s *Schema) forgetSplitKey(ctx context.Context, name, key string) error {
	return s.changeSplitKeys(ctx, name, func(keys [][]byte) [][]byte {
		return slices.DeleteFunc(keys, func(k []byte) bool { return string(k) == key })
	})
}

// changeSplitKeys replaces the split keys of a table. CODE_NO_TABLE if it does not exist.
func (s *Schema) changeSplitKeys(ctx context.Context, name string, to func([][]byte) [][]byte) error {
	_, err := update(ctx, s.records, prefixTable+name,
		func(t *pb.Table) (*pb.Table, []change, error) {
			if t == nil {
				return nil, nil, refuse(pb.Error_CODE_NO_TABLE, "there is no table %q", name)
			}
			t.SplitKeys = to(t.SplitKeys)
			return t, nil, nil
		})
	return err
}

// SplitAt creates a tablet boundary before row in the table with the id, which the merger may
// remove again, unlike SplitTablet's. The splitter calls it.
func (s *Schema) SplitAt(ctx context.Context, table mvcc.TableID, row string) error {
	if err := s.ddl.lock(ctx); err != nil {
		return err
	}
	defer s.ddl.unlock()
	if err := s.room(ctx, "", uint32(table), row); err != nil {
		return err
	}
	return s.split(ctx, table, row, 0)
}
