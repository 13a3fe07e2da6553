package tablet

import (
	"slices"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// catalogue is the tablet's version of the catalogue of observed columns (design section
// 7), indexed for evaluation. It is immutable: a new version is a new catalogue.
type catalogue struct {
	message *pb.Catalogue
	columns map[columnKey]mvcc.Observed
	names   map[columnKey]string // the observers'
	dropped map[mvcc.TableID]bool
	// For collection: when tables were dropped; who acks a column, retired observers
	// included; and the inverse.
	droppedTS map[mvcc.TableID]mvcc.Timestamp
	acks      map[columnKey][]string
	watched   map[columnKey]string // by table and observer
}

type columnKey struct {
	table  mvcc.TableID
	column string
}

func newCatalogue(message *pb.Catalogue) *catalogue {
	c := &catalogue{message: message, columns: map[columnKey]mvcc.Observed{}, names: map[columnKey]string{}, dropped: map[mvcc.TableID]bool{}}
	c.droppedTS, c.acks, c.watched = map[mvcc.TableID]mvcc.Timestamp{}, map[columnKey][]string{}, map[columnKey]string{}
	for _, o := range message.GetObservers() {
		watched := columnKey{mvcc.TableID(o.Table), wire.String(o.Column)}
		c.acks[watched] = append(c.acks[watched], o.Name)
		c.watched[columnKey{watched.table, o.Name}] = watched.column
		if o.Retired {
			continue
		}
		kind := mvcc.ObservedStrong
		if o.Weak {
			kind = mvcc.ObservedWeak
		}
		key := columnKey{mvcc.TableID(o.Table), wire.String(o.Column)}
		c.columns[key], c.names[key] = kind, o.Name
	}
	for i, id := range message.GetDroppedTables() {
		c.dropped[mvcc.TableID(id)] = true
		if i < len(message.DroppedTs) {
			c.droppedTS[mvcc.TableID(id)] = mvcc.Timestamp(message.DroppedTs[i])
		}
	}
	return c
}

// isDropped reports whether the table has been dropped, also if nothing is left of it.
func (c *catalogue) isDropped(id mvcc.TableID) bool {
	return c.dropped[id] || slices.ContainsFunc(c.message.GetGone(), func(r *pb.TableRange) bool {
		return r.First <= uint32(id) && uint32(id) <= r.Last
	})
}

// droppedAt reports whether the table was dropped at or below the timestamp. Without a
// date a drop counts as later.
func (c *catalogue) droppedAt(id mvcc.TableID, ts mvcc.Timestamp) bool {
	at := c.droppedTS[id]
	return at != 0 && at <= ts
}

func (c *catalogue) version() uint64 { return c.message.GetVersion() }

func (c *catalogue) observed(t mvcc.TableID, column string) mvcc.Observed {
	return c.columns[columnKey{t, column}]
}

// columnsOf lists the observed columns of a table.
func (c *catalogue) columnsOf(t mvcc.TableID) []string {
	var out []string
	for k := range c.columns {
		if k.table == t {
			out = append(out, k.column)
		}
	}
	return out
}
