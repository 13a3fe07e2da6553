// Package changes has the programs of the guide's page on following changes.
package changes

import (
	"context"
	"time"

	percolator "github.com/percolator-go/percolator"
)

// Index is a store outside the repository. follow and keep apply the changes of documents to it.
type Index interface {
	Put(row string, value []byte)
	Delete(row string)
	Flush() error
}

// follow applies the present state and all later changes to an index, until an error. It returns
// that error, and the position up to which the index is complete.
func follow(ctx context.Context, db *percolator.DB, index Index) (position percolator.Timestamp, err error) {
	for change, err := range db.Changes(ctx, 0, percolator.Rows("documents").Columns("body")) {
		if err != nil {
			return position, err
		}
		switch {
		case change.Resolved != 0:
			position = change.Resolved // everything up to it has been applied
		case change.Deleted:
			index.Delete(change.Row)
		default:
			index.Put(change.Row, change.Value)
		}
	}
	return position, nil
}

// keep follows changes from the position that the cluster stores, and advances it once a second.
func keep(ctx context.Context, db *percolator.DB, index Index) error {
	sub, err := db.Subscribe(ctx, "search-index")
	if err != nil {
		return err
	}
	stored := time.Now()
	for change, err := range sub.Changes(ctx, percolator.Rows("documents")) {
		switch {
		case err != nil:
			return err
		case change.Resolved == 0 && change.Deleted:
			index.Delete(change.Row)
		case change.Resolved == 0:
			index.Put(change.Row, change.Value)
		case time.Since(stored) > time.Second:
			if err := index.Flush(); err != nil {
				return err
			}
			if err := sub.Advance(ctx, change.Resolved); err != nil {
				return err
			}
			stored = time.Now()
		}
	}
	return nil
}
