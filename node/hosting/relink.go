package hosting

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster/meta"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
)

// A program observes a table by its name; tablets and scanners know it by its id. A table
// that is dropped and made anew has another id, and its observers have gone from the
// catalogue with the old one. So every node registers those that it runs again, before
// CreateTable returns, and no change after that is missed.
//
// This file adds to observers and owns nothing more. linkAnew runs on the goroutine of
// whoever makes a table, watchTables on one of the node's background; what they start
// takes turns by applying.

const (
	// relinkTimeout bounds CreateTable's wait for live nodes, and one look of
	// watchTables.
	relinkTimeout = 5 * time.Second
	// relinkPause is how often a node looks by itself whether one of its observers'
	// tables was made anew, at least; a tenth of it at most is added by chance. It is for
	// tables whose maker died before the nodes were told.
	relinkPause = 10 * time.Second
)

// LinkAnew makes all live nodes apply the catalogue if it lacks an observer that one of
// them runs. Otherwise creating a table costs no request to other nodes.
func (h *Host) LinkAnew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, relinkTimeout)
	defer cancel()
	linked, err := h.Linked(ctx)
	if err != nil || len(linked) == 0 {
		return err
	}
	c, err := h.cfg.Catalogue.Catalogue(ctx)
	if err != nil {
		return err
	}
	// What is left is run somewhere and has no entry.
	for _, o := range c.GetObservers() {
		delete(linked, o.GetName())
	}
	if len(linked) == 0 {
		return nil
	}
	return h.ApplyEverywhere(ctx)
}

// relink registers and links the observers of this node whose table was dropped,
// according to the catalogue, and made anew, or was not there when the node started; it
// returns the newest catalogue that it has read. What was retired stays so.
// meta.ErrUntold: some tablets do not know of them yet, and are told later. The caller
// holds applying.
func (h *Host) relink(ctx context.Context, x *runner,
	c *pb.Catalogue) (*pb.Catalogue, error) {
	tables := map[string]mvcc.TableID{}
	var infos []*pb.ObserverInfo
	for _, o := range x.dispatcher.Registered() {
		// Linked, and its table is still there.
		if o.Table != 0 && !meta.IsDropped(c, uint32(o.Table)) {
			continue
		}
		t, err := h.cfg.Schema.Table(ctx, o.Spec.Column.Table)
		if err != nil {
			return c, err
		}
		if t == nil { // nobody has made it anew
			continue
		}
		tables[o.Spec.Name] = mvcc.TableID(t.Id)
		infos = append(infos, infoOf(o.Spec, mvcc.TableID(t.Id)))
	}
	if len(infos) == 0 {
		return c, nil
	}
	newest, err := h.cfg.Catalogue.Enter(ctx, infos)
	if err != nil {
		return c, fmt.Errorf("hosting: register observers of a re-created table: %w", err)
	}
	if err := x.dispatcher.Relink(ctx, tables); err != nil {
		return newest, err
	}
	ctx, cancel := context.WithTimeout(ctx, relinkTimeout)
	defer cancel()
	// The dispatcher is linked by now: what tablets notify from here on is admitted.
	if err = h.cfg.Catalogue.Sync(ctx); err != nil {
		h.registration.retry(err)
	}
	return newest, err
}

// rescan starts the scanners anew if the dispatcher is linked to other columns than they
// look for. The caller holds applying.
func (h *Host) rescan(ctx context.Context, x *runner) error {
	old := x.scanners.Load()
	if old == nil || x.ended || slices.Equal(x.scanned, x.dispatcher.Targets()) {
		return nil
	}
	// Scanners look for the targets that they were started with.
	if err := old.Stop(ctx); err != nil {
		return fmt.Errorf("hosting: stop the scanners of a dropped table: %w", err)
	}
	return h.startScanners(x)
}

// WatchTables looks from time to time whether a table of this node's observers was made
// anew, and for a new version of the cluster's policy. It is a goroutine of the node's
// background and returns when ctx ends.
func (h *Host) WatchTables(ctx context.Context) {
	for txn.Sleep(ctx, relinkPause+rand.N(relinkPause/10)) == nil {
		attempt, cancel := context.WithTimeout(ctx, relinkTimeout)
		// Without observers here, only the policy may concern this node.
		look := h.ApplyCatalogue
		if x := h.runs.Load(); x == nil || len(x.dispatcher.Registered()) == 0 {
			look = func(ctx context.Context) error { _, err := h.cfg.Policy.Read(ctx); return err }
		}
		if err := look(attempt); err != nil && ctx.Err() == nil {
			h.cfg.Node.Logger.Warn("the observer catalogue and the cluster's policy could not be read; they are read again soon", "error", err)
		}
		cancel()
	}
}
