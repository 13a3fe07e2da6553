package hosting

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/actors/observer"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster/meta"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// registration enters this program's observers in the catalogue and announces them to every tablet.
// An observer is registered once all tablets have acknowledged it. Tablets may be unavailable for
// long: Open waits for registerWait, then the node serves, and a goroutine of the node's background
// (run) continues. That goroutine also completes announcements of a node that changed the catalogue
// and ended before every tablet had acknowledged: at the start of this node, and while it leads
// meta.
//
// unmade and left belong to Open's goroutine until run begins, and to run from then on. Any
// goroutine may wake run, or call retry and why. One attempt is in flight at most.
type registration struct {
	schema    *meta.Schema
	catalogue *meta.Observers
	logger    *slog.Logger
	apply     func(context.Context) error // links observers whose table now exists

	unmade []percolator.TableSpec    // tables of Registry.Table that are not created yet
	left   []percolator.ObserverSpec // not in the catalogue yet
	woken  actorkit.Wakeup           // makes run check for work

	mu      sync.Mutex
	pending error // why tablets may lack the observers; nil: none does, as far as this node knows
}

const (
	// registerWait bounds Open's wait for the tables and tablets of new observers, and the
	// registration of a worker's observers.
	registerWait = 10 * time.Second
	// registerAttempt bounds each later attempt, by run. registerPause bounds the first pause
	// between two; each further bound is twice the last, up to maxRegisterPause. A pause lasts from
	// half of its bound to all of it, at random.
	registerAttempt  = 30 * time.Second
	registerPause    = time.Second
	maxRegisterPause = 30 * time.Second
)

// begin makes the first attempt, within Open. It returns the registered observers with their
// links; that of an observer that is not in the catalogue yet is zero. If only registerWait has run
// out, it returns no error, and run continues.
func (r *registration) begin(ctx context.Context,
	registry *percolator.Registry) ([]observer.Registered, error) {
	// Mostly this takes no time: the observers are in the catalogue already, and every
	// tablet knows them.
	first, cancel := context.WithTimeout(ctx, registerWait)
	defer cancel()
	observers := registry.Observers()
	r.unmade, r.left = registry.Tables(), observers
	links, err := r.attempt(first)
	// If only registerWait has run out, run goes on with what is left.
	if err != nil && (ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded)) {
		return nil, err
	}
	r.note(err)
	out := make([]observer.Registered, 0, len(observers))
	for _, o := range observers {
		out = append(out, observer.Registered{Spec: o, Link: links[o.Name]})
	}
	return out, nil
}

// attempt creates missing tables, enters the observers with a table, and distributes the catalogue
// to every tablet. It returns the links of the entered observers, by name.
func (r *registration) attempt(ctx context.Context) (map[string]observer.Link, error) {
	// The observers of existing tables are entered even if other tables could not be created.
	tables, missing := r.tables(ctx)
	// A table whose creation takes too long must not delay the observers of other tables.
	if missing != nil && !errors.Is(missing, context.DeadlineExceeded) {
		return nil, missing
	}
	var infos []*pb.ObserverInfo
	var left []percolator.ObserverSpec
	for _, o := range r.left {
		if id := tables[o.Column.Table]; id != 0 {
			infos = append(infos, infoOf(o, id))
		} else {
			left = append(left, o)
		}
	}
	links := map[string]observer.Link{}
	if len(infos) > 0 {
		c, err := r.catalogue.Enter(ctx, infos)
		if err != nil {
			return nil, errors.Join(missing, fmt.Errorf("hosting: register observers: %w", err))
		}
		for _, o := range infos {
			links[o.Name], _ = linkOf(c, o)
		}
	}
	// From here on the observers are in the catalogue, whether or not the tablets answer now. Sync
	// also announces changes of other nodes that not every tablet has received.
	r.left = left
	if err := r.catalogue.Sync(ctx); err != nil {
		return links, errors.Join(missing, fmt.Errorf("hosting: announce the registered observers: %w", err))
	}
	return links, missing
}

// linkOf returns the position of the observer's notify entries by the catalogue; ok is false if the
// catalogue does not contain the observer.
func linkOf(c *pb.Catalogue, o *pb.ObserverInfo) (link observer.Link, ok bool) {
	for _, have := range c.GetObservers() {
		if have.Name == o.Name && wire.ColumnOf(have) == wire.ColumnOf(o) {
			return observer.Link{Table: mvcc.TableID(have.Table), Own: have.OwnEntry}, true
		}
	}
	return observer.Link{}, false
}

// tables creates the missing registered tables, and returns the tables of the remaining observers,
// by name. Creation may use at most half of the remaining time, so that entering the observers with
// existing tables does not time out.
func (r *registration) tables(ctx context.Context) (map[string]mvcc.TableID, error) {
	out := map[string]mvcc.TableID{}
	missing := r.unmade // also tables that exist: creating them again adds missing split keys
	for _, o := range r.left {
		name := o.Column.Table
		t, err := r.schema.Table(ctx, name)
		if err != nil {
			return out, fmt.Errorf("hosting: look up table %q of observer %q: %w", name, o.Name, err)
		}
		if t != nil {
			out[name] = mvcc.TableID(t.Id)
		} else if !slices.ContainsFunc(missing, named(name)) {
			missing = append(missing, percolator.TableSpec{Name: name})
		}
	}
	if len(missing) == 0 {
		return out, nil
	}
	if deadline, ok := ctx.Deadline(); ok {
		half, cancel := context.WithTimeout(ctx, time.Until(deadline)/2)
		defer cancel()
		ctx = half
	}
	for _, spec := range missing {
		expiry, err := wire.ExpiryPB(spec.Expiry.After, spec.Expiry.Columns)
		if err != nil {
			return out, fmt.Errorf("hosting: encode the expiry of table %q: %w", spec.Name, err)
		}
		t, err := r.schema.CreateExpiring(ctx, spec.Name, spec.SplitKeys, expiry)
		if err != nil {
			return out, fmt.Errorf("hosting: create table %q: %w", spec.Name, err)
		}
		out[t.Name] = mvcc.TableID(t.Id)
		r.unmade = slices.DeleteFunc(slices.Clone(r.unmade), named(t.Name))
	}
	return out, nil
}

// named matches the table of that name.
func named(name string) func(percolator.TableSpec) bool {
	return func(t percolator.TableSpec) bool { return t.Name == name }
}

// note records the outcome of an attempt, and logs a failure, or the first success after one.
func (r *registration) note(err error) {
	r.mu.Lock()
	before := r.pending
	r.pending = err
	r.mu.Unlock()
	switch {
	case err != nil:
		r.logger.Warn("not every tablet knows this node's observers; until a later attempt succeeds, "+
			"tablets that do not know them report no changes to them", "error", err)
	case before != nil: // logged once, after a warning
		r.logger.Info("every tablet knows this node's observers")
	}
}

// why returns the text of the last attempt's error; "" if it succeeded.
func (r *registration) why() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pending == nil {
		return ""
	}
	return r.pending.Error()
}

// retry leaves to run what could not be distributed in time.
func (r *registration) retry(err error) {
	r.note(err)
	r.woken.Wake()
}

// run continues with the remaining work until ctx ends. While nothing is missing it waits to be
// woken.
func (r *registration) run(ctx context.Context) {
	for wait := registerPause; ; {
		// While something is missing, retry after a pause. Otherwise wait to be woken.
		if r.why() != "" {
			// With jitter, so that nodes that wait for the same tablet do not ask it together.
			if txn.Sleep(ctx, wait/2+rand.N(wait/2)) != nil {
				return
			}
			wait = min(2*wait, maxRegisterPause)
		} else {
			wait = registerPause
			select {
			case <-r.woken:
			case <-ctx.Done():
				return
			}
		}
		// An error due to the end of ctx says nothing about the tablets.
		if err := r.once(ctx); ctx.Err() == nil {
			r.note(err)
		}
	}
}

// once makes one attempt, and links the observers that it entered. It omits an ErrUntold of apply:
// Sync has reported it already.
func (r *registration) once(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, registerAttempt)
	defer cancel()
	had := len(r.left)
	_, err := r.attempt(ctx)
	if len(r.left) == had {
		return err
	}
	if applied := r.apply(ctx); !errors.Is(applied, meta.ErrUntold) {
		err = errors.Join(err, applied)
	}
	return err
}
