package meta

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster/route"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// Start and end of restores of tables (docs/adr/0034). A table being restored has a mark in its
// record, which clients respect when they look the name up, and is listed in the catalogue, by
// which its tablets reject clients that looked it up before. Both are written atomically and are
// the only state: any restore of the same backup may continue. Calls run on the goroutines of
// operators' requests.

// Restores starts and ends restores. It has no state.
type Restores struct{ schema *Schema }

// Begin marks a table as being restored, creating it if necessary, and waits until every tablet
// has the mark. It returns the table's id and whether it already had the mark. The caller must
// ensure that a table without a mark is empty. An existing table keeps its expiry.
func (r *Restores) Begin(ctx context.Context, name string, splitKeys []string,
	expiry *pb.TableExpiry, mark *pb.RestoreMark) (id uint32, resumed bool, err error) {
	if _, err := r.schema.CreateExpiring(ctx, name, splitKeys, expiry); err != nil {
		return 0, false, err
	}
	err = r.changeTable(ctx, name, func(c *pb.Catalogue, t *pb.Table) error {
		id, resumed = t.Id, t.Restoring != nil
		if resumed {
			return sameMark(t, mark)
		}
		t.Restoring = mark
		c.RestoringTables = append(c.RestoringTables, t.Id)
		return nil
	})
	return id, resumed, err
}

// Table returns the id of the table being restored with the mark. It rejects any other.
func (r *Restores) Table(ctx context.Context, name string, mark *pb.RestoreMark) (uint32, error) {
	t, err := r.schema.Table(ctx, name)
	if err != nil {
		return 0, err
	}
	if t.GetRestoring() == nil {
		return 0, refuse(pb.Error_CODE_INVALID, "table %q is not being restored", name)
	}
	return t.Id, sameMark(t, mark)
}

// sameMark rejects the mark of another restore.
func sameMark(t *pb.Table, mark *pb.RestoreMark) error {
	if have := t.Restoring; !proto.Equal(have, mark) {
		return refuse(pb.Error_CODE_INVALID,
			"table %q is being restored from %s at %d: repeat that restore or load to finish it, or drop the table",
			t.Name, have.Source, have.At)
	}
	return nil
}

// Bind makes the tablets of a table being restored reject reads below now. A backup planned
// before the table was marked would otherwise copy some of its rows.
func (r *Restores) Bind(ctx context.Context, table uint32, now mvcc.Timestamp) error {
	return r.bind(ctx, mvcc.TableID(table), now)
}

// Finish ends the restore of a table: its tablets reject reads below now, which would see an
// incomplete table, and then the mark is removed. It may be repeated.
func (r *Restores) Finish(ctx context.Context, name string, mark *pb.RestoreMark,
	now mvcc.Timestamp) (id uint32, err error) {
	t, err := r.schema.existing(ctx, name)
	if err != nil {
		return 0, err
	}
	if t.Restoring == nil {
		return t.Id, r.schema.observers.Sync(ctx) // an earlier call may not have reached all tablets
	}
	if err := sameMark(t, mark); err != nil {
		return 0, err
	}
	if err := r.bind(ctx, mvcc.TableID(t.Id), now); err != nil {
		return 0, err
	}
	return t.Id, r.changeTable(ctx, name, func(c *pb.Catalogue, t *pb.Table) error {
		if t.Restoring == nil {
			return nil
		}
		err := sameMark(t, mark)
		t.Restoring, t.Restored = nil, t.Restoring
		c.RestoringTables = without(c.RestoringTables, t.Id)
		return err
	})
}

// changeTable changes a table's record together with the catalogue, and sends the catalogue to
// every tablet.
func (r *Restores) changeTable(ctx context.Context, name string,
	fn func(*pb.Catalogue, *pb.Table) error) error {
	return r.schema.observers.changeCatalogue(ctx, func(c *pb.Catalogue) ([]change, error) {
		t, err := r.schema.existing(ctx, name)
		if err != nil {
			return nil, err
		}
		before, err := encode(t)
		if err != nil {
			return nil, err
		}
		if err := fn(c, t); err != nil {
			return nil, err
		}
		after, err := encode(t)
		if err != nil || bytes.Equal(before, after) {
			return nil, err
		}
		return []change{{row: prefixTable + name, old: before, value: after}}, nil
	})
}

// without returns the ids except id.
func without(ids []uint32, id uint32) []uint32 {
	return slices.DeleteFunc(ids, func(other uint32) bool { return other == id })
}

// bind raises the read bound of all tablets of the table, one after the other. A tablet that was
// split since it was looked up rejects the request and is looked up again: its later splits
// inherit the bound.
func (r *Restores) bind(ctx context.Context, table mvcc.TableID, bound mvcc.Timestamp) error {
	at := wire.Position{Table: table}
	for at.Table == table {
		err := retry(ctx, func() (bool, error) {
			held, err := r.schema.router.Find(ctx, at.Table, at.Row, 1)
			if err != nil || len(held) == 0 {
				return false, err
			}
			d := held[0]
			_, err = r.schema.send(ctx, d.TabletId, &pb.TabletRequest{
				Epoch: d.Epoch,
				Op: &pb.TabletRequest_Collect{
					Collect: &pb.CollectRequest{Bound: uint64(bound)},
				},
			})
			switch {
			case errors.Is(err, route.ErrUnknown), passes(codeOf(err)):
				return false, nil
			case err != nil:
				return false, fmt.Errorf("meta: raise read bound of tablet %d: %w", d.TabletId, err)
			}
			end, bounded := wire.EndOf(d)
			if !bounded {
				end.Table = table + 1
			}
			at = end
			return true, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
