package meta

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/cluster/route"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// This file makes, splits and drops tables. A table comes into being in three steps that
// each survive a crash: its name reserves an id, the tablet boundaries are made, the
// record with the name is written. It owns no state; calls run on the goroutines of
// clients' requests on any node, one at a time on each node (ddl), and of the splitter
// beside meta's leader.

// The rows of tables: the counters of ids, and one row for each table and for each that
// is being made.
const (
	rowNextTable   = "next/table"
	rowNextTablet  = "next/tablet"
	prefixTable    = "table/"
	prefixCreating = "creating/"
)

// Bounds of one request: the bytes of a table's name, and its split keys, each of which
// makes a tablet.
const (
	maxTableName = 255
	maxSplitKeys = 1024
)

// Schema makes, splits and drops tables.
type Schema struct {
	records
	router    *route.Router
	tablets   *TabletMap
	policy    *Policy
	observers *Observers // a drop removes the table's
	ddl       ddlLock    // also the observers'
}

// Table returns a table's record, nil if there is no such table.
func (s *Schema) Table(ctx context.Context, name string) (*pb.Table, error) {
	t, old, err := load[*pb.Table](ctx, s.records, prefixTable+name)
	if err != nil || old == nil {
		return nil, err
	}
	return t, nil
}

// Tables returns all tables in the order of names.
func (s *Schema) Tables(ctx context.Context) ([]*pb.Table, error) {
	return list[*pb.Table](ctx, s.records, prefixTable)
}

// CreateTable creates the table, or adds missing split keys to the one there is, and
// returns its record. It may be repeated after any failure: the record that gives the
// name its id is written last, when the tablet boundaries exist; until then the id is
// reserved.
func (s *Schema) CreateTable(ctx context.Context, name string,
	splitKeys []string) (*pb.Table, error) {
	if name == "" || len(name) > maxTableName {
		return nil, refuse(pb.Error_CODE_INVALID, "a table's name has 1 to %d bytes, not %d",
			maxTableName, len(name))
	}
	if len(splitKeys) > maxSplitKeys {
		return nil, refuse(pb.Error_CODE_TOO_LARGE,
			"%d split keys; at most %d at once: add the others by another request", len(splitKeys),
			maxSplitKeys)
	}
	if err := s.ddl.lock(ctx); err != nil {
		return nil, err
	}
	defer s.ddl.unlock()
	for {
		t, err := s.Table(ctx, name)
		if err != nil {
			return nil, err
		}
		if t != nil {
			return t, s.addSplitKeys(ctx, t, splitKeys)
		}
		// Before an id is taken: a refusal must leave nothing behind.
		if err := s.roomForTable(ctx, name, splitKeys); err != nil {
			return nil, err
		}
		reserved, err := s.reserveTable(ctx, name)
		if err != nil {
			return nil, err
		}
		t = &pb.Table{Id: binary.BigEndian.Uint32(reserved), Name: name}
		if err := s.splitTable(ctx, t, append([]string{""}, splitKeys...)); err != nil {
			return nil, err
		}
		value, err := encode(t)
		if err != nil {
			return nil, err
		}
		// No copy of this that comes late makes anything: the reservation is gone with
		// the first, and the id with the drop.
		made := []change{
			{row: prefixTable + name, value: value}, {row: prefixCreating + name, old: reserved},
			{row: droppedRow(t.Id), keep: true},
		}
		if done, err := s.swap(ctx, made...); done || err != nil {
			return t, err
		}
	}
}

// roomForTable is roomForTablets for a table that is yet to be made.
func (s *Schema) roomForTable(ctx context.Context, name string, splitKeys []string) error {
	reserved, err := s.get(ctx, prefixCreating+name)
	if err != nil {
		return err
	}
	keys := append([]string{""}, splitKeys...)
	// An earlier attempt has made some of the boundaries already; those are not counted
	// twice.
	if len(reserved) == 4 {
		return s.roomForTablets(ctx, binary.BigEndian.Uint32(reserved), keys...)
	}
	// The id that it would get now. The counter is not raised.
	next, _, err := s.counted(ctx, rowNextTable, uint64(mvcc.FirstUserTable))
	if err != nil {
		return err
	}
	return s.roomForTablets(ctx, uint32(next), keys...)
}

// roomForTablets refuses new boundaries at keys in the table with the id if they would
// make more tablets than the policy allows. A boundary that exists costs nothing, and a
// tablet of dropped tables alone does not count: it is merged away. While more of these
// wait for that than the policy allows tablets, nothing new is made. Nodes that make tablets
// at the same moment do not see each other's: each may exceed the bound by what one request
// makes.
func (s *Schema) roomForTablets(ctx context.Context, id uint32, keys ...string) error {
	tablets, err := s.tablets.Tablets(ctx)
	if err != nil {
		return err
	}
	c, err := s.observers.Catalogue(ctx)
	if err != nil {
		return err
	}
	there, unused, at := 0, 0, map[wire.Position]bool{}
	for _, d := range tablets {
		start := wire.StartOf(d)
		if start.Table < mvcc.FirstUserTable {
			continue
		}
		at[start] = true
		if Unused(c, d) {
			unused++
		} else {
			there++
		}
	}
	more := 0
	for _, key := range keys {
		if start := (wire.Position{Table: mvcc.TableID(id), Row: key}); !at[start] {
			at[start] = true
			more++
		}
	}
	// Nothing is made, so the request is allowed also where the bound was lowered since.
	if more == 0 {
		return nil
	}
	p, err := s.policy.Read(ctx)
	if err != nil {
		return err
	}
	most := p.GetSplitMaxTablets()
	if uint64(unused) > most {
		return refuse(pb.Error_CODE_OVERLOADED,
			"%d tablets of dropped tables wait to be merged, and at most %d may: try again later",
			unused, most)
	}
	if uint64(there+more) > most {
		return refuse(pb.Error_CODE_TOO_LARGE,
			"there are %d tablets, and at most %d are allowed: %d more would have to be made. "+
				"`percolator cluster set "+
				"split-max-tablets=N` allows more", there, most, more)
	}
	return nil
}

// reserveTable returns the id, as four bytes, of a table that is being made. An attempt
// that timed out, as one with many split keys may, is resumed with the same id; a new id
// would orphan its tablets.
func (s *Schema) reserveTable(ctx context.Context, name string) (reserved []byte, err error) {
	err = retry(ctx, func() (bool, error) {
		if reserved, err = s.get(ctx, prefixCreating+name); err != nil || len(reserved) == 4 {
			return true, err
		}
		id, step, err := s.counted(ctx, rowNextTable, uint64(mvcc.FirstUserTable))
		if err != nil {
			return false, err
		}
		old := reserved
		reserved = binary.BigEndian.AppendUint32(nil, uint32(id))
		// In one step with the counter, which never has the same value again: a copy of
		// this that comes when the table was made, and dropped, would reserve the dropped
		// id.
		return s.swap(ctx, change{row: prefixCreating + name, old: old, value: reserved}, step)
	})
	return reserved, err
}

// addSplitKeys splits an existing table at the keys it lacks and records them.
func (s *Schema) addSplitKeys(ctx context.Context, t *pb.Table, keys []string) error {
	old, err := encode(t)
	if err != nil {
		return err
	}
	if len(keys) > 0 {
		if err := s.roomForTablets(ctx, t.Id, keys...); err != nil {
			return err
		}
	}
	before := len(t.SplitKeys)
	if err := s.splitTable(ctx, t, keys); err != nil || len(t.SplitKeys) == before {
		return err
	}
	value, err := encode(t)
	if err != nil {
		return err
	}
	// If another request has changed the record, its keys stand: the boundaries are made in
	// any case.
	_, err = s.swap(ctx, change{row: prefixTable + t.Name, old: old, value: value})
	return err
}

// splitTable makes a boundary at each key that t does not list, and appends it to
// t.SplitKeys. The empty key is the table's start, which is not listed.
func (s *Schema) splitTable(ctx context.Context, t *pb.Table, keys []string) error {
	for _, key := range keys {
		if slices.ContainsFunc(t.SplitKeys, func(k []byte) bool { return string(k) == key }) {
			continue
		}
		if err := s.split(ctx, mvcc.TableID(t.Id), key); err != nil {
			return fmt.Errorf("meta: split table %q at %q: %w", t.Name, key, err)
		}
		if key != "" {
			t.SplitKeys = append(t.SplitKeys, []byte(key))
		}
	}
	return nil
}

// DropTable removes the name of the table with the id and tells all tablets, which then
// refuse reads and writes of its cells. The id is never used again.
//
// It may be repeated after any failure: a drop that some tablets may not have heard of is
// finished, and a table that is dropped already is no error, whoever has its name by now.
// With the id 0, for a caller that saw no table of that name, it finishes an earlier
// drop. CODE_NO_TABLE if the name and the id are not of one table.
func (s *Schema) DropTable(ctx context.Context, name string, id uint32) error {
	return s.observers.changeCatalogue(ctx, func(c *pb.Catalogue) ([]change, error) {
		if id != 0 && IsDropped(c, id) {
			return nil, nil // publishing it again tells whom the first request did not reach
		}
		t, err := s.Table(ctx, name)
		if err != nil {
			return nil, err
		}
		if t == nil {
			return nil, s.dropUntold(ctx, c, name)
		}
		if t.Id != id {
			return nil, refuse(pb.Error_CODE_NO_TABLE,
				"table %q has the id %d, not %d: list the tables again", name, t.Id, id)
		}
		value, err := encode(t)
		if err != nil {
			return nil, err
		}
		// The name is removed in one step with the catalogue's entries: observers that stayed
		// would keep those of a new table of the same name out. DateDrops sets the timestamp.
		c.DroppedTables, c.DroppedTs = append(c.DroppedTables, t.Id), append(droppedTS(c), 0)
		c.RestoringTables = without(c.RestoringTables, t.Id)
		gone, err := s.observers.removeEntries(ctx, c, func(o *pb.ObserverInfo) bool {
			return o.Table == t.Id
		})
		if err != nil {
			return nil, err
		}
		// In the same step: a table that is made under the name later has no grants, and a list
		// that showed these would promise protection that is not there.
		ungranted, err := s.policy.withoutGrants(ctx, t.Id)
		if err != nil {
			return nil, err
		}
		dropped := change{row: droppedRow(t.Id), value: value}
		gone = append(append(gone, ungranted...), dropped)
		return append(gone, change{row: prefixTable + name, old: value}), nil
	})
}

// split makes a tablet boundary before (table, row). One that exists is no error.
func (s *Schema) split(ctx context.Context, table mvcc.TableID, row string) error {
	return retry(ctx, func() (bool, error) {
		held, err := s.router.Find(ctx, table, row, 1)
		// The map in meta lags behind the tablets: look again.
		if err != nil || len(held) == 0 {
			return false, err
		}
		// It is there, made by an earlier attempt or by another.
		if wire.StartOf(held[0]) == (wire.Position{Table: table, Row: row}) {
			return true, nil
		}
		// A fresh id for each attempt: if the last one was done after all, its id is in
		// use.
		id, err := s.nextID(ctx, rowNextTablet, cluster.FirstFreeTablet)
		if err != nil {
			return false, err
		}
		r, err := s.send(ctx, held[0].TabletId, &pb.TabletRequest{Op: &pb.TabletRequest_Split{
			Split: &pb.SplitRequest{Table: uint32(table), Row: wire.Bytes(row), NewTabletId: id},
		}})
		var refused *txn.ServerError
		// Whether or not it was done, the next attempt finds the tablet as it is then.
		if errors.Is(err, route.ErrUnknown) {
			return false, nil
		}
		// Another split has moved the place to a different tablet.
		if errors.As(err, &refused) && refused.Code == pb.Error_CODE_WRONG_TABLET {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		for _, d := range []*pb.TabletDescriptor{r.GetSplit().GetLeft(), r.GetSplit().GetRight()} {
			if d == nil {
				continue
			}
			// This node knows at once; the others learn from meta, or from the tablets
			// themselves.
			s.router.Update(d)
			if err := s.tablets.Report(ctx, d); err != nil {
				return false, err
			}
		}
		return true, nil
	})
}

// SplitTablet makes a tablet boundary before row in the table with the name. One that
// exists is no error.
func (s *Schema) SplitTablet(ctx context.Context, name, row string) error {
	t, err := s.Table(ctx, name)
	if err != nil {
		return err
	}
	if t == nil {
		return refuse(pb.Error_CODE_NO_TABLE, "there is no table %q", name)
	}
	return s.SplitAt(ctx, mvcc.TableID(t.Id), row)
}

// SplitAt is like SplitTablet but takes the table's id. The splitter calls it.
func (s *Schema) SplitAt(ctx context.Context, table mvcc.TableID, row string) error {
	if err := s.ddl.lock(ctx); err != nil {
		return err
	}
	defer s.ddl.unlock()
	if err := s.roomForTablets(ctx, uint32(table), row); err != nil {
		return err
	}
	return s.split(ctx, table, row)
}
