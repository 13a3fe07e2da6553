package meta

import (
	"context"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// This file reads and replaces the observer catalogue: one record, whose version grows by
// one with every write. Writers of one node take turns by the ddl lock, which keeps their
// conditional writes from failing each other; writers of several nodes are kept apart by
// those writes alone. Callers are the node's registration of observers, the Admin service
// and the jobs beside meta's leader, each on a goroutine of its own.

// rowCatalogue is the row of the catalogue.
const rowCatalogue = "catalogue"

// Observers is the catalogue of observers and dropped tables, and which observers each
// node links.
type Observers struct {
	records
	// ddl serializes this node's schema changes, so that they do not fail each other's
	// conditional writes.
	ddl       ddlLock
	publisher *publisher
}

// Catalogue reads the newest version of the observer catalogue.
func (obs *Observers) Catalogue(ctx context.Context) (*pb.Catalogue, error) {
	c, _, err := load[*pb.Catalogue](ctx, obs.records, rowCatalogue)
	return c, err
}

// changeCatalogue lets fn edit the catalogue, writes the result as a new version if it
// differs, together with the changes that fn returns, and then tells every tablet the
// newest version.
//
// fn is called again if another writer was faster. The ddl lock is given back before the
// tablets are waited for: they may be away for long, and other schema changes must not
// wait with this one. ErrUntold means that the write is durable and only the telling
// failed.
func (obs *Observers) changeCatalogue(ctx context.Context,
	fn func(*pb.Catalogue) ([]change, error)) error {
	current, err := obs.writeCatalogue(ctx, fn)
	if err != nil {
		return err
	}
	return obs.publisher.publish(ctx, current)
}

// writeCatalogue is like changeCatalogue but tells nobody. It returns the newest version,
// whether or not fn changed it.
func (obs *Observers) writeCatalogue(ctx context.Context,
	fn func(*pb.Catalogue) ([]change, error)) (current *pb.Catalogue, err error) {
	if err := obs.ddl.lock(ctx); err != nil {
		return nil, err
	}
	defer obs.ddl.unlock()
	return update(ctx, obs.records, rowCatalogue,
		func(c *pb.Catalogue) (*pb.Catalogue, []change, error) {
			if c == nil {
				c = &pb.Catalogue{}
			}
			before := proto.CloneOf(c)
			with, err := fn(c)
			// Without a change there is no new version, and so nothing that tablets would
			// have to learn.
			if err == nil && !proto.Equal(before, c) {
				c.Version++
			}
			return c, with, err
		})
}

// Sync tells every tablet the newest catalogue, unless all are known to have it. It
// finishes what a writer began that has given up or crashed between its write and the
// last tablet.
func (obs *Observers) Sync(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c, err := obs.Catalogue(ctx)
	if err != nil {
		return err
	}
	return obs.publisher.publish(ctx, c)
}
