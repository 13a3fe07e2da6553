package memory

import (
	"iter"
	"slices"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// Catalogue is a tablet's version of the catalogue of observed columns (design section 7),
// indexed for evaluation. It is immutable: a new version is a new Catalogue.
type Catalogue struct {
	Message *pb.Catalogue
	columns map[columnKey]mvcc.Observation // by observed column
	dropped map[mvcc.TableID]bool
	// For collection, retired observers included. An observer's name is also the column of its
	// acknowledgments.
	droppedTS map[mvcc.TableID]mvcc.Timestamp // when the table was dropped
	acks      map[columnKey][]string          // by observed column: the names of its observers
	watched   map[columnKey]mvcc.Watch        // by column of acknowledgments: the observed column
	// indexed has the columns of the notify and intent groups: the observed columns, and those
	// of observers with notify entries of their own, retired ones included.
	indexed map[columnKey]bool
}

type columnKey = mvcc.ObservedColumn

// NewCatalogue indexes the message, which must not change afterwards.
func NewCatalogue(message *pb.Catalogue) *Catalogue {
	c := &Catalogue{
		Message: message, columns: map[columnKey]mvcc.Observation{},
		dropped: map[mvcc.TableID]bool{}, droppedTS: map[mvcc.TableID]mvcc.Timestamp{},
		acks: map[columnKey][]string{}, watched: map[columnKey]mvcc.Watch{},
		indexed: map[columnKey]bool{},
	}
	for _, o := range message.GetObservers() {
		// A retired observer no longer runs, but its acknowledgments are still in the rows, and are
		// collected according to what they acknowledge.
		watched := wire.ColumnOf(o)
		c.acks[watched] = append(c.acks[watched], o.Name)
		ack := columnKey{Table: watched.Table, Class: mvcc.ClassAck, Column: o.Name}
		c.watched[ack] = mvcc.Watch{Column: watched.Column, Own: o.OwnEntry}
		c.indexed[watched], c.indexed[wire.NotifyColumn(o)] = true, true
		how := c.columns[watched]
		if !o.OwnEntry {
			how.PlainOf = o.Name
			c.columns[watched] = how
		}
		if o.Retired {
			continue
		}
		how.How = mvcc.ObservedStrong
		if o.Weak {
			how.How = mvcc.ObservedWeak
		}
		if o.OwnEntry {
			how.Own = append(how.Own, o.Name)
		} else {
			how.Plain = true
		}
		c.columns[watched] = how
	}
	for i, id := range message.GetDroppedTables() {
		c.dropped[mvcc.TableID(id)] = true
		if i < len(message.DroppedTs) {
			c.droppedTS[mvcc.TableID(id)] = mvcc.Timestamp(message.DroppedTs[i])
		}
	}
	return c
}

// Dropped reports whether the table has been dropped, even if nothing of it remains.
func (c *Catalogue) Dropped(id mvcc.TableID) bool {
	return c.dropped[id] || slices.ContainsFunc(c.Message.GetGone(), func(r *pb.TableRange) bool {
		return r.First <= uint32(id) && uint32(id) <= r.Last
	})
}

// Restoring reports whether the table is being restored from a backup.
func (c *Catalogue) Restoring(id mvcc.TableID) bool {
	return slices.Contains(c.Message.GetRestoringTables(), uint32(id))
}

// AnyRestoring reports whether any table is being restored.
func (c *Catalogue) AnyRestoring() bool { return len(c.Message.GetRestoringTables()) > 0 }

// AnyDropped reports whether any table has been dropped.
func (c *Catalogue) AnyDropped() bool { return len(c.dropped) > 0 || len(c.Message.GetGone()) > 0 }

// DroppedAt reports whether the table was dropped at or below the timestamp, so that a
// safepoint there covers all of it. A drop without a timestamp counts as later.
func (c *Catalogue) DroppedAt(id mvcc.TableID, ts mvcc.Timestamp) bool {
	at := c.droppedTS[id]
	return at != 0 && at <= ts
}

// LastDrop returns the latest drop, up to the timestamp, of a table that the tablet can hold
// rows of; 0 if there is none.
func (c *Catalogue) LastDrop(d *pb.TabletDescriptor, ts mvcc.Timestamp) (last mvcc.Timestamp) {
	for id, at := range c.droppedTS {
		if _, holds := wire.Clip(d, mvcc.Span{Table: id}); holds && at <= ts {
			last = max(last, at)
		}
	}
	return last
}

// Version returns the catalogue's version, 0 for a tablet that has received none.
func (c *Catalogue) Version() uint64 { return c.Message.GetVersion() }

// Observed returns the observation of the column.
func (c *Catalogue) Observed(t mvcc.TableID, column string) mvcc.Observation {
	return c.columns[columnKey{Table: t, Column: column}]
}

// Columns iterates the columns that have an observer that is not retired.
func (c *Catalogue) Columns() iter.Seq2[mvcc.ObservedColumn, mvcc.Observation] {
	return func(yield func(mvcc.ObservedColumn, mvcc.Observation) bool) {
		for k, how := range c.columns {
			if how.How != mvcc.NotObserved && !yield(k, how) {
				return
			}
		}
	}
}

// columnsOf returns the columns of the table's notifications and intents, except those of
// retired observers.
func (c *Catalogue) columnsOf(t mvcc.TableID) []mvcc.ObservedColumn {
	var out []mvcc.ObservedColumn
	for k, how := range c.Columns() {
		if k.Table != t {
			continue
		}
		out = append(out, k)
		for _, name := range how.Own {
			out = append(out, columnKey{Table: t, Class: mvcc.ClassAck, Column: name})
		}
	}
	return out
}

// At returns the catalogue's view for collection up to a safepoint.
func (c *Catalogue) At(safepoint mvcc.Timestamp) Observers { return Observers{c, safepoint} }

// Observers is a Catalogue as of a safepoint.
type Observers struct {
	catalogue *Catalogue
	safepoint mvcc.Timestamp
}

// Acks implements mvcc.Observers.
func (o Observers) Acks(t mvcc.TableID, column string) []string {
	return o.catalogue.acks[columnKey{Table: t, Column: column}]
}

// AckOf implements mvcc.Observers.
func (o Observers) AckOf(t mvcc.TableID, observer string) (mvcc.Watch, bool) {
	w, ok := o.catalogue.watched[columnKey{Table: t, Class: mvcc.ClassAck, Column: observer}]
	return w, ok
}

// Dropped implements mvcc.Observers.
func (o Observers) Dropped(t mvcc.TableID) bool { return o.catalogue.DroppedAt(t, o.safepoint) }
