package meta

import (
	"context"
	"strconv"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster/route"
)

// The tablet map: the last report of each tablet. Nodes report from the goroutine that does so
// for all of a node's tablets, placement on the node that leads meta, and splits and merges on
// their callers' goroutines; any node reads it.

// prefixTablet is the prefix of the rows of the tablet map, one for each tablet.
const prefixTablet = "tablet/"

// TabletMap is the last reported location of each tablet.
type TabletMap struct{ records }

// tabletRow returns the row of a tablet in the tablet map.
func tabletRow(id uint64) string { return prefixTablet + strconv.FormatUint(id, 10) }

// Report stores a tablet's descriptor in the tablet map, unless the map has the same or a higher
// epoch.
func (t *TabletMap) Report(ctx context.Context, d *pb.TabletDescriptor) error {
	_, err := update(ctx, t.records, tabletRow(d.TabletId),
		func(have *pb.TabletDescriptor) (*pb.TabletDescriptor, []change, error) {
			// Reports may arrive out of order: a late one must not replace a newer one.
			if have != nil && have.Epoch >= d.Epoch {
				return have, nil, nil
			}
			return d, nil, nil
		})
	return err
}

// Tablets returns the tablet map in the order of ranges, without tablets that were merged into
// others: a late report may have restored one. While a split is being reported, the map may have a
// gap or an overlap.
func (t *TabletMap) Tablets(ctx context.Context) ([]*pb.TabletDescriptor, error) {
	all, err := list[*pb.TabletDescriptor](ctx, t.records, prefixTablet)
	present, _ := route.Present(all)
	return present, err
}

// forgetMerged removes the records of tablets that were merged into others.
func (t *TabletMap) forgetMerged(ctx context.Context) error {
	all, err := list[*pb.TabletDescriptor](ctx, t.records, prefixTablet)
	if err != nil {
		return err
	}
	_, gone := route.Present(all)
	for _, d := range gone {
		value, err := encode(d)
		if err != nil {
			return err
		}
		// If a record has changed in the meantime, it is checked again after the next merge.
		if _, err := t.swap(ctx, change{row: tabletRow(d.TabletId), old: value}); err != nil {
			return err
		}
	}
	return nil
}
