package meta

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// Lifecycle of a dropped table, from the removal of its name to the point where only a range of
// ids remains: dated (DateDrops) once every tablet rejects its cells, then forgotten
// (ForgetDrops) once its data is deleted. Both run in the collection job of the node that leads
// meta; two leaders of meta may run them concurrently, which the catalogue's conditional writes
// resolve.

// prefixDropped is the prefix of the rows with the last records of dropped tables.
const prefixDropped = "dropped/"

// Drops advances the catalogue's dropped tables. Now returns a new timestamp.
type Drops struct {
	Schema *Schema
	Now    func(context.Context) (mvcc.Timestamp, error)
}

// Tend implements collector.Drops. No safepoint is being raised during the call: a tablet that
// has passed a drop has begun to delete, and reports that until it has finished.
func (d Drops) Tend(ctx context.Context, tablets []*pb.StatusResponse) (waiting bool, err error) {
	c, err := d.Schema.observers.Catalogue(ctx)
	if err != nil || len(c.GetDroppedTables()) == 0 {
		return false, err
	}
	// A drop gets its timestamp once every tablet has its catalogue version, see DateDrops.
	if err := d.Schema.DateDrops(ctx, d.Now); err != nil {
		return false, err
	}
	for _, t := range tablets {
		// The distribution was interrupted: the tablet does not know yet what to delete.
		if t.CatalogueVersion < c.Version {
			return true, d.Schema.observers.Sync(ctx)
		}
	}
	err = d.Schema.ForgetDrops(ctx, func(id mvcc.TableID, droppedAt mvcc.Timestamp) bool {
		// A table is gone once every tablet with a part of its range has passed the drop and has
		// nothing left to delete. The statuses are those of all tablets; without a tablet that has a
		// part nothing is concluded.
		gone := false
		for _, t := range tablets {
			if _, holds := wire.Clip(t.Tablet, mvcc.Span{Table: id}); !holds {
				continue
			}
			if gone = t.Garbage == 0 && mvcc.Timestamp(t.Safepoint) > droppedAt; !gone {
				break
			}
		}
		waiting = waiting || !gone
		return gone
	})
	return waiting, err
}

// DateDrops sets a new timestamp for drops that have none. It first ensures that every tablet has
// the catalogue with the drop: every write to the table that a tablet still accepted started
// before the timestamp.
func (s *Schema) DateDrops(ctx context.Context,
	now func(context.Context) (mvcc.Timestamp, error)) error {
	c, err := s.observers.Catalogue(ctx)
	if err != nil || !slices.Contains(droppedTS(c), 0) {
		return err
	}
	// Only these are dated below: a drop written after the Sync has not reached every tablet when
	// the timestamp is obtained.
	undated := undatedDrops(c)
	// Before the timestamp, not after: a tablet that does not have the drop may accept writes to
	// the table that start later than any timestamp obtained now.
	if err := s.observers.Sync(ctx); err != nil {
		return err
	}
	at, err := now(ctx)
	if err != nil {
		return fmt.Errorf("meta: get the timestamp of a drop: %w", err)
	}
	return s.observers.changeCatalogue(ctx, func(c *pb.Catalogue) ([]change, error) {
		c.DroppedTs = droppedTS(c)
		for i, id := range c.DroppedTables {
			// Another leader may have dated it in the meantime; the first date is kept.
			if c.DroppedTs[i] == 0 && slices.Contains(undated, id) {
				c.DroppedTs[i] = uint64(at)
			}
		}
		return nil, nil
	})
}

// undatedDrops returns the ids of dropped tables that have no timestamp yet.
func undatedDrops(c *pb.Catalogue) []uint32 {
	var out []uint32
	for i, ts := range droppedTS(c) {
		if ts == 0 {
			out = append(out, c.DroppedTables[i])
		}
	}
	return out
}

// droppedTS returns the timestamps of the drops in the order of DroppedTables, 0 for undated
// ones. Catalogues of earlier versions have fewer timestamps than tables.
func droppedTS(c *pb.Catalogue) []uint64 {
	out := make([]uint64, len(c.DroppedTables))
	copy(out, c.DroppedTs)
	return out
}

// ForgetDrops removes dropped tables without remaining data from the list that tablets search for
// data to delete. gone reports, for a table and the timestamp of its drop, whether none of its
// data remains.
//
// The ids stay in the catalogue as ranges, at most one more than there are tables, so that a
// client that was suspended during the drop is rejected forever.
func (s *Schema) ForgetDrops(ctx context.Context,
	gone func(id mvcc.TableID, droppedAt mvcc.Timestamp) bool) error {
	c, err := s.observers.Catalogue(ctx)
	if err != nil || len(c.DroppedTables) == 0 {
		return err
	}
	done := map[uint32]bool{}
	for i, ts := range droppedTS(c) {
		// Without a date it is unknown whether a transaction from before the drop is still to
		// come.
		if id := c.DroppedTables[i]; ts != 0 && gone(mvcc.TableID(id), mvcc.Timestamp(ts)) {
			done[id] = true
		}
	}
	if len(done) == 0 {
		return nil
	}
	return s.observers.changeCatalogue(ctx, func(c *pb.Catalogue) ([]change, error) {
		var ids []uint32
		var at []uint64
		var records []change
		for i, ts := range droppedTS(c) {
			id := c.DroppedTables[i]
			if !done[id] {
				ids, at = append(ids, id), append(at, ts)
				continue
			}
			c.Gone = addToRanges(c.Gone, id)
			// The record with the table's name is needed only while the drop may have to be
			// finished by name (finishableDrop).
			row := droppedRow(id)
			if value, err := s.get(ctx, row); err != nil {
				return nil, err
			} else if value != nil {
				records = append(records, change{row: row, old: value})
			}
		}
		c.DroppedTables, c.DroppedTs = ids, at
		return records, nil
	})
}

// finishableDrop returns nil if a table of that name was dropped by a request that may have failed
// before every tablet had the new version: the next distribution finishes it. Otherwise it
// returns the rejection. The caller holds ddl.
func (s *Schema) finishableDrop(ctx context.Context, c *pb.Catalogue, name string) error {
	// A dated drop has reached all tablets (DateDrops), and so has each version that this process
	// has distributed.
	if s.observers.publisher.published.Load() < c.Version {
		for _, id := range undatedDrops(c) {
			t, _, err := load[*pb.Table](ctx, s.records, droppedRow(id))
			if err != nil {
				return err
			}
			if t.Name == name {
				return nil
			}
		}
	}
	return refuse(pb.Error_CODE_NO_TABLE, "there is no table %q", name)
}

// IsDropped reports whether the catalogue lists the table as dropped. That is final: ids are not
// reused.
func IsDropped(c *pb.Catalogue, id uint32) bool {
	return slices.Contains(c.DroppedTables, id) ||
		slices.ContainsFunc(c.Gone, func(r *pb.TableRange) bool {
			return r.First <= id && id <= r.Last
		})
}

// Unused reports whether the catalogue lists as dropped every table whose rows the tablet may
// hold. The last tablet is never unused, because it holds the timers.
func Unused(c *pb.Catalogue, d *pb.TabletDescriptor) bool {
	end, bounded := wire.EndOf(d)
	if !bounded {
		return false
	}
	first, last := uint32(wire.StartOf(d).Table), uint32(end.Table)
	if end.Row == "" { // the tablet ends before the first row of that table
		last--
	}
	for id := first; id <= last; id++ {
		if !IsDropped(c, id) {
			return false
		}
	}
	return true
}

// droppedRow returns the row with the last record of a dropped table.
func droppedRow(id uint32) string { return prefixDropped + strconv.FormatUint(uint64(id), 10) }

// addToRanges adds an id to sorted ranges that neither overlap nor touch.
func addToRanges(ranges []*pb.TableRange, id uint32) []*pb.TableRange {
	i := 0
	// Skip the ranges that end before id and are not adjacent to it.
	for i < len(ranges) && ranges[i].Last+1 < id {
		i++
	}
	// No range is adjacent: insert a new one in order.
	if i == len(ranges) || id+1 < ranges[i].First {
		return slices.Insert(ranges, i, &pb.TableRange{First: id, Last: id})
	}
	ranges[i].First, ranges[i].Last = min(ranges[i].First, id), max(ranges[i].Last, id)
	// The id closed the gap to the next range: join the two.
	if i+1 < len(ranges) && ranges[i].Last+1 >= ranges[i+1].First {
		ranges[i].Last = ranges[i+1].Last
		ranges = slices.Delete(ranges, i+1, i+2)
	}
	return ranges
}
