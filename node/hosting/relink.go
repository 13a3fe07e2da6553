package hosting

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/percolator-go/percolator/actors/observer"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster/meta"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
)

// A program observes a table by its name; tablets and scanners know it by its id. A table that
// is dropped and re-created has another id, and its observers have left the catalogue with the
// old one. Every live node that answers within relinkTimeout registers its observers again before
// CreateTable returns, so that no later change is missed; the other nodes do so within about
// relinkPause.

const (
	// relinkTimeout bounds CreateTable's wait for live nodes, and one check of WatchTables.
	relinkTimeout = 5 * time.Second
	// relinkPause is the least time between two checks of WatchTables; up to a tenth is added at
	// random. The check finds tables whose creator died before it had told the nodes.
	relinkPause = 10 * time.Second
)

// LinkAnew makes all live nodes apply the catalogue if it lacks an observer that one of them
// runs. Otherwise it only reads meta.
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
	// The remaining observers run on some node and have no entry in the catalogue.
	for _, o := range c.GetObservers() {
		delete(linked, o.GetName())
	}
	if len(linked) == 0 {
		return nil
	}
	return h.ApplyEverywhere(ctx)
}

// relink registers and links the observers of this node whose table was re-created, or was missing
// when the node started, and links those that were entered since, or have other notify entries now.
// It returns the newest catalogue that it has read. It does not enter retired observers again. The
// error is meta.ErrUntold if some tablets have not applied the catalogue yet; that is retried
// later. The caller holds applying.
func (h *Host) relink(ctx context.Context, x *runner,
	c *pb.Catalogue) (*pb.Catalogue, error) {
	links := map[string]observer.Link{}
	// A retired observer that another node has entered again may have other notify entries.
	for _, o := range x.dispatcher.Registered(true) {
		if is, entered := linkOf(c, infoOf(o.Spec, o.Table)); entered && is != o.Link {
			links[o.Spec.Name] = is
		}
	}
	var infos []*pb.ObserverInfo
	for _, o := range x.dispatcher.Registered(false) {
		// The observer is linked, and its table still exists.
		if o.Table != 0 && !meta.IsDropped(c, uint32(o.Table)) {
			if is, entered := linkOf(c, infoOf(o.Spec, o.Table)); entered && is != o.Link {
				links[o.Spec.Name] = is
			}
			continue
		}
		t, err := h.cfg.Schema.Table(ctx, o.Spec.Column.Table)
		if err != nil {
			return c, err
		}
		if t == nil { // the table was not re-created
			continue
		}
		info := infoOf(o.Spec, mvcc.TableID(t.Id))
		if is, entered := linkOf(c, info); entered {
			links[info.Name] = is
		} else if !meta.Awaits(c, info) { // a retired observer of that name must be removed first
			infos = append(infos, info)
		}
	}
	newest := c
	if len(infos) > 0 {
		entered, err := h.cfg.Catalogue.Enter(ctx, infos)
		if err != nil {
			return c, fmt.Errorf("hosting: register observers of a created table: %w", err)
		}
		newest = entered
		for _, o := range infos {
			links[o.Name], _ = linkOf(newest, o)
		}
	}
	if len(links) == 0 {
		return newest, nil
	}
	if err := x.dispatcher.Relink(ctx, links); err != nil || len(infos) == 0 {
		return newest, err
	}
	ctx, cancel := context.WithTimeout(ctx, relinkTimeout)
	defer cancel()
	// The dispatcher is linked, so that it admits what tablets notify from here on.
	err := h.cfg.Catalogue.Sync(ctx)
	if err != nil {
		h.registration.retry(err)
	}
	return newest, err
}

// rescan restarts the scanners if the dispatcher is linked to other columns than theirs. The
// caller holds applying.
func (h *Host) rescan(ctx context.Context, x *runner) error {
	old := x.scanners.Load()
	if old == nil || x.ended || slices.Equal(x.scanned, x.dispatcher.Targets()) {
		return nil
	}
	// Scanners look for the targets that they were started with.
	if err := old.Stop(ctx); err != nil {
		return fmt.Errorf("hosting: stop the scanners to restart them: %w", err)
	}
	return h.startScanners(x)
}

// WatchTables periodically checks whether a table of this node's observers was re-created, and
// reads the policy. It runs on its own goroutine until ctx ends.
func (h *Host) WatchTables(ctx context.Context) {
	for txn.Sleep(ctx, relinkPause+rand.N(relinkPause/10)) == nil {
		attempt, cancel := context.WithTimeout(ctx, relinkTimeout)
		// Without observers here, only the policy may concern this node.
		look := h.ApplyCatalogue
		if x := h.runs.Load(); x == nil || len(x.dispatcher.Registered(false)) == 0 && len(h.workers.all()) == 0 {
			look = func(ctx context.Context) error { _, err := h.cfg.Policy.Read(ctx); return err }
		}
		if err := look(attempt); err != nil && ctx.Err() == nil {
			h.cfg.Node.Logger.Warn("the observer catalogue or the cluster's policy could not be "+
				"read or applied, will retry", "error", err)
		}
		cancel()
	}
}
