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

// This file takes a dropped table from the moment its name is gone to the moment nothing
// but a range of ids is left of it: dated (DateDrops) once every tablet refuses its
// cells, then forgotten (ForgetDrops) once its data is deleted. It owns no state. Both
// run on the collection job of the node that leads meta; two leaders of meta may run them
// at once, which the catalogue's conditional write resolves.

// prefixDropped begins the rows with the last records of dropped tables.
const prefixDropped = "dropped/"

// Drops looks after the catalogue's dropped tables. Now gives a fresh timestamp.
type Drops struct {
	Schema *Schema
	Now    func(context.Context) (mvcc.Timestamp, error)
}

// Tend implements collector.Drops. No safepoint is being raised while it is called: a
// tablet that has passed a drop has begun to delete, and says so until it is done.
func (d Drops) Tend(ctx context.Context, tablets []*pb.StatusResponse) (waiting bool, err error) {
	c, err := d.Schema.observers.Catalogue(ctx)
	if err != nil || len(c.GetDroppedTables()) == 0 {
		return false, err
	}
	// A drop gets its timestamp once every tablet knows of it, see DateDrops.
	if err := d.Schema.DateDrops(ctx, d.Now); err != nil {
		return false, err
	}
	for _, t := range tablets {
		// A push was cut short: the tablet does not know yet what to delete.
		if t.CatalogueVersion < c.Version {
			return true, d.Schema.observers.Sync(ctx)
		}
	}
	err = d.Schema.ForgetDrops(ctx, func(id mvcc.TableID, droppedAt mvcc.Timestamp) bool {
		// A table is gone once every tablet that has a part of its range has passed the
		// drop and has nothing left to delete. If none of those that answered has a part,
		// its tablets are the ones that are missing: then it is not known to be gone.
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

// DateDrops enters the timestamp, a fresh one, for drops that have none yet. It first
// makes sure that every tablet has the catalogue with the drop in it: whatever a tablet
// still takes for a dropped table began before the timestamp.
func (s *Schema) DateDrops(ctx context.Context,
	now func(context.Context) (mvcc.Timestamp, error)) error {
	c, err := s.observers.Catalogue(ctx)
	if err != nil || !slices.Contains(droppedTS(c), 0) {
		return err
	}
	// Only these are dated below: a drop that is written after the Sync has not been told
	// to every tablet when the timestamp is taken.
	undated := undatedDrops(c)
	// Before the timestamp, not after: a tablet that has not heard of the drop may accept
	// writes to the table that begin later than any timestamp taken now.
	if err := s.observers.Sync(ctx); err != nil {
		return err
	}
	at, err := now(ctx)
	if err != nil {
		return fmt.Errorf("meta: date a drop: %w", err)
	}
	return s.observers.changeCatalogue(ctx, func(c *pb.Catalogue) ([]change, error) {
		c.DroppedTs = droppedTS(c)
		for i, id := range c.DroppedTables {
			// Another leader may have dated it meanwhile; the first date stands.
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

// droppedTS returns the timestamps of the drops in the order of DroppedTables, 0 for each
// that is not dated. Catalogues of earlier versions have fewer timestamps than tables.
func droppedTS(c *pb.Catalogue) []uint64 {
	out := make([]uint64, len(c.DroppedTables))
	copy(out, c.DroppedTs)
	return out
}

// ForgetDrops takes dropped tables of which nothing is left off the list that tablets
// search for data to delete. gone reports, for a table and the time of its drop, whether
// nothing is left of it.
//
// The ids stay in the catalogue as ranges, at most one more than there are tables, so
// that a client that has slept through the drop is refused for ever.
func (s *Schema) ForgetDrops(ctx context.Context,
	gone func(id mvcc.TableID, droppedAt mvcc.Timestamp) bool) error {
	c, err := s.observers.Catalogue(ctx)
	if err != nil || len(c.DroppedTables) == 0 {
		return err
	}
	done := map[uint32]bool{}
	for i, ts := range droppedTS(c) {
		// Without a date nobody can tell whether a transaction from before the drop is
		// still to come.
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
			// The record that keeps the table's name is needed only while the drop may
			// have to be finished by name (dropUntold).
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

// dropUntold returns nil if a table of that name, which is gone, was dropped by a request
// that may have failed before every tablet knew: what is published next finishes it.
// Otherwise it is the refusal. The caller holds ddl.
func (s *Schema) dropUntold(ctx context.Context, c *pb.Catalogue, name string) error {
	// What has a date was told (DateDrops), and so was all that this process has published.
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

// IsDropped reports whether the catalogue has the table as dropped. That is for good: ids
// are not reused.
func IsDropped(c *pb.Catalogue, id uint32) bool {
	return slices.Contains(c.DroppedTables, id) ||
		slices.ContainsFunc(c.Gone, func(r *pb.TableRange) bool {
			return r.First <= id && id <= r.Last
		})
}

// Unused reports whether the catalogue has every table of which the tablet can hold rows as
// dropped. The last tablet is never unused, because the timers are in it.
func Unused(c *pb.Catalogue, d *pb.TabletDescriptor) bool {
	end, bounded := wire.EndOf(d)
	if !bounded {
		return false
	}
	first, last := uint32(wire.StartOf(d).Table), uint32(end.Table)
	if end.Row == "" { // it ends before that table
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
	// Skip the ranges that end before id and do not even touch it.
	for i < len(ranges) && ranges[i].Last+1 < id {
		i++
	}
	// It touches no range: a new one is inserted in order.
	if i == len(ranges) || id+1 < ranges[i].First {
		return slices.Insert(ranges, i, &pb.TableRange{First: id, Last: id})
	}
	ranges[i].First, ranges[i].Last = min(ranges[i].First, id), max(ranges[i].Last, id)
	// The id has closed the gap to the next range, so the two become one.
	if i+1 < len(ranges) && ranges[i].Last+1 >= ranges[i+1].First {
		ranges[i].Last = ranges[i+1].Last
		ranges = slices.Delete(ranges, i+1, i+2)
	}
	return ranges
}
