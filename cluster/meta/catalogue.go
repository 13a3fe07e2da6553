package meta

import (
	"cmp"
	"context"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// The observer catalogue: a single record whose version increases by one with each write. On one
// node the ddl lock serializes writers, so that their conditional writes do not fail each other;
// between nodes only the conditional writes do. Callers are the node's registration of observers,
// the Admin service and the jobs on the node that leads meta, each on its own goroutine.

// rowCatalogue is the row of the catalogue.
const rowCatalogue = "catalogue"

// Observers holds the catalogue of observers and dropped tables, and each node's linked
// observers.
type Observers struct {
	records
	// ddl serializes this node's schema changes, so that they do not fail each other's
	// conditional writes.
	ddl       ddlLock
	publisher *publisher
	policy    *Policy
}

// Catalogue returns the newest version of the observer catalogue.
func (obs *Observers) Catalogue(ctx context.Context) (*pb.Catalogue, error) {
	c, _, err := load[*pb.Catalogue](ctx, obs.records, rowCatalogue)
	return c, err
}

// changeCatalogue applies fn to the catalogue, writes the result as a new version if it differs,
// together with the changes that fn returns, and then sends the newest version to every tablet.
//
// fn is called again after a conflict. The ddl lock is released before the tablets respond: they
// may be unavailable for long, and other schema changes must not wait for them. ErrUntold means
// that the write is durable and only the distribution failed.
func (obs *Observers) changeCatalogue(ctx context.Context,
	fn func(*pb.Catalogue) ([]change, error)) error {
	current, err := obs.writeCatalogue(ctx, fn)
	if err != nil {
		return err
	}
	return obs.publisher.publish(ctx, current)
}

// writeCatalogue is changeCatalogue without the distribution. It returns the newest version,
// whether or not fn changed it.
func (obs *Observers) writeCatalogue(ctx context.Context,
	fn func(*pb.Catalogue) ([]change, error)) (current *pb.Catalogue, err error) {
	if err := obs.ddl.lock(ctx); err != nil {
		return nil, err
	}
	defer obs.ddl.unlock()
	return update(ctx, obs.records, rowCatalogue,
		func(c *pb.Catalogue) (*pb.Catalogue, []change, error) {
			c = cmp.Or(c, &pb.Catalogue{})
			before := proto.CloneOf(c)
			with, err := fn(c)
			// Without a change there is no new version, hence nothing to send to the tablets.
			if err == nil && !proto.Equal(before, c) {
				c.Version++
			}
			return c, with, err
		})
}

// Sync sends the newest catalogue to every tablet, unless all are known to have it. It completes
// a distribution whose writer timed out or crashed before the last tablet.
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
