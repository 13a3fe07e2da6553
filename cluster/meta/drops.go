package meta

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// DateDrops enters the timestamp, a fresh one, for drops that have none yet. It first
// makes sure that every tablet has the catalogue with the drop in it: whatever a tablet
// still takes for a dropped table began before the timestamp.
func (m *Meta) DateDrops(ctx context.Context,
	now func(context.Context) (mvcc.Timestamp, error)) error {
	c, err := m.Catalogue(ctx)
	if err != nil || !slices.Contains(droppedTS(c), 0) {
		return err
	}
	undated := undatedDrops(c)
	if err := m.Sync(ctx); err != nil {
		return err
	}
	at, err := now(ctx)
	if err != nil {
		return fmt.Errorf("meta: date a drop: %w", err)
	}
	return m.changeCatalogue(ctx, func(c *pb.Catalogue) ([]change, error) {
		c.DroppedTs = droppedTS(c)
		for i, id := range c.DroppedTables {
			if c.DroppedTs[i] == 0 && slices.Contains(undated, id) {
				c.DroppedTs[i] = uint64(at)
			}
		}
		return nil, nil
	})
}

func undatedDrops(c *pb.Catalogue) []uint32 {
	var out []uint32
	for i, ts := range droppedTS(c) {
		if ts == 0 {
			out = append(out, c.DroppedTables[i])
		}
	}
	return out
}

// droppedTS is the drops' timestamps, one a dropped table.
func droppedTS(c *pb.Catalogue) []uint64 {
	out := make([]uint64, len(c.DroppedTables))
	copy(out, c.DroppedTs)
	return out
}

// ForgetDrops takes dropped tables of which nothing is left off the list that tablets
// look through for data to delete. What remains of them are ranges of ids, at most one
// more than there are tables: a client that has slept through the drop is refused for
// ever. gone says for a table and the time of its drop whether nothing is left of it.
func (m *Meta) ForgetDrops(ctx context.Context,
	gone func(id mvcc.TableID, droppedAt mvcc.Timestamp) bool) error {
	c, err := m.Catalogue(ctx)
	if err != nil || len(c.DroppedTables) == 0 {
		return err
	}
	done := map[uint32]bool{}
	for i, ts := range droppedTS(c) {
		if id := c.DroppedTables[i]; ts != 0 && gone(mvcc.TableID(id), mvcc.Timestamp(ts)) {
			done[id] = true
		}
	}
	if len(done) == 0 {
		return nil
	}
	return m.changeCatalogue(ctx, func(c *pb.Catalogue) ([]change, error) {
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
			row := droppedRow(id)
			if value, err := m.get(ctx, row); err != nil {
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
// that may have failed before every tablet knew: the push that follows finishes it.
// Otherwise it is the refusal. The caller holds ddl.
func (m *Meta) dropUntold(ctx context.Context, c *pb.Catalogue, name string) error {
	// What has a date was told (DateDrops), and so was all that this process has pushed.
	if m.pushed.Load() < c.Version {
		for _, id := range undatedDrops(c) {
			value, err := m.get(ctx, droppedRow(id))
			if err != nil {
				return err
			}
			t := &pb.Table{}
			if err := decode(droppedRow(id), value, t); err != nil {
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

func droppedRow(id uint32) string { return prefixDropped + strconv.FormatUint(uint64(id), 10) }

// addToRanges adds an id to sorted ranges that neither overlap nor touch.
func addToRanges(ranges []*pb.TableRange, id uint32) []*pb.TableRange {
	i := 0
	for i < len(ranges) && ranges[i].Last+1 < id {
		i++
	}
	if i == len(ranges) || id+1 < ranges[i].First {
		return slices.Insert(ranges, i, &pb.TableRange{First: id, Last: id})
	}
	ranges[i].First, ranges[i].Last = min(ranges[i].First, id), max(ranges[i].Last, id)
	if i+1 < len(ranges) && ranges[i].Last+1 >= ranges[i+1].First {
		ranges[i].Last = ranges[i+1].Last
		ranges = slices.Delete(ranges, i+1, i+2)
	}
	return ranges
}
