package request

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/coded"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn/background"
	"github.com/percolator-go/percolator/internal/wire"
)

// maxTableName is the maximum length of a table's name, in bytes.
const maxTableName = 255

// Meta sends requests to the cluster's meta tablet and retries them. It caches the ids of tables.
// Ids are never reused, so a stale id is that of a dropped table: a tablet answers CODE_NO_TABLE,
// which empties the cache.
type Meta struct {
	transport Transport
	maxRow    int               // limit of a split key, in bytes
	timeout   time.Duration     // of the retries of one request
	work      *background.Group // reports whether the client is closed

	ids atomic.Pointer[map[string]mvcc.TableID]
	// asking holds a token during a request for the tables, so that only one is running. It is not
	// a mutex, because waiters have deadlines.
	asking chan struct{}
}

// NewMeta returns a Meta that retries each request for the timeout. maxRow is the limit of a split
// key, in bytes.
func NewMeta(transport Transport, maxRow int, timeout time.Duration, work *background.Group) *Meta {
	return &Meta{
		transport: transport, maxRow: maxRow, timeout: timeout, work: work,
		asking: make(chan struct{}, 1),
	}
}

// Known returns the cached id of a table, if any.
func (m *Meta) Known(table string) (mvcc.TableID, bool) {
	ids := m.ids.Load()
	if ids == nil {
		return 0, false
	}
	id, ok := (*ids)[table]
	return id, ok
}

// forget empties the cache.
func (m *Meta) forget() { m.ids.Store(nil) }

// learn replaces the cache by the tables of meta's answer that can be used now.
func (m *Meta) learn(tables []*pb.Table) {
	ids := make(map[string]mvcc.TableID, len(tables))
	for _, t := range tables {
		if usable(t) {
			ids[t.Name] = mvcc.TableID(t.Id)
		}
	}
	m.ids.Store(&ids)
}

// usable reports whether this client can use the table now.
func usable(t *pb.Table) bool { return t.DroppedTs == 0 && t.Restoring == nil && !t.Hidden }

// TableID returns the id of the table from the cache or from meta. It returns ErrNoTable if there
// is no such table, and ErrRestoring while the table is being restored.
func (m *Meta) TableID(ctx context.Context, name string) (mvcc.TableID, error) {
	if id, ok := m.Known(name); ok {
		return id, nil
	}
	// At startup hundreds of goroutines look up a few tables at once: only one of them queries
	// meta.
	select {
	case m.asking <- struct{}{}:
		defer func() { <-m.asking }()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	if id, ok := m.Known(name); ok {
		return id, nil
	}
	tables, err := m.allTables(ctx)
	if err != nil {
		return 0, err
	}
	for _, t := range tables { // not the cache, which another goroutine may have emptied
		if t.Name == name && usable(t) {
			return mvcc.TableID(t.Id), nil
		}
	}
	for _, t := range tables {
		if t.Name == name && t.Restoring != nil {
			return 0, coded.Mark(Errorf("%w: table %q is being restored from %s: wait until it is complete; "+
				"if the restore or load has stopped, run it again or drop the table", ErrUnavailable, name, t.Restoring.Source), ErrRestoring)
		}
	}
	if slices.ContainsFunc(tables, func(t *pb.Table) bool { return t.Hidden }) {
		return 0, Errorf("%w: %q, or the client has no grant for it: ask an operator for `percolator grant`",
			ErrNoTable, name)
	}
	return 0, Errorf("%w: %q", ErrNoTable, name)
}

// allTables returns meta's list of tables, including dropped and hidden ones.
func (m *Meta) allTables(ctx context.Context) ([]*pb.Table, error) {
	tables, err := retry(ctx, m, func() ([]*pb.Table, error) { return m.transport.Tables(ctx) })
	if err == nil {
		m.learn(tables)
	}
	return tables, err
}

// Tables lists the tables by name, without dropped tables and those for which this client has
// no grant.
func (m *Meta) Tables(ctx context.Context) ([]*pb.Table, error) {
	tables, err := m.allTables(ctx)
	if err != nil {
		return nil, err
	}
	tables = slices.DeleteFunc(slices.Clone(tables), func(t *pb.Table) bool {
		return t.DroppedTs != 0 || t.Hidden
	})
	slices.SortFunc(tables, func(a, b *pb.Table) int { return strings.Compare(a.Name, b.Name) })
	return tables, nil
}

// There is no negative caching: another process may create a table at any time.

// CreateTable creates a table, or adds split keys to one that exists.
func (m *Meta) CreateTable(ctx context.Context, name string, splitKeys []string) error {
	return m.createWith(ctx, name, splitKeys, nil)
}

// createWith creates a table with the split keys and the expiry, which may be nil.
func (m *Meta) createWith(ctx context.Context, name string, splitKeys []string,
	expiry *pb.TableExpiry) error {
	if name == "" || len(name) > maxTableName || !utf8.ValidString(name) {
		return Invalid("table name %q is not 1 to %d bytes of UTF-8", name, maxTableName)
	}
	for _, k := range splitKeys {
		if k == "" {
			return Invalid("empty split key")
		}
		if len(k) > m.maxRow {
			return &LimitError{Limit: "split key", Size: len(k), Max: m.maxRow}
		}
	}
	req := &pb.CreateTableRequest{Name: name, Stepwise: true, Expiry: expiry}
	for _, k := range splitKeys {
		req.SplitKeys = append(req.SplitKeys, wire.Bytes(k))
	}
	err := m.createTable(ctx, req)
	m.forget()
	return err
}

// CreateExpiring creates a table with the split keys and the expiry. An existing table keeps its
// expiry.
func (m *Meta) CreateExpiring(ctx context.Context, name string, splitKeys []string,
	expiry *pb.TableExpiry) error {
	if err := m.allowExpiry(ctx); err != nil {
		return err
	}
	return m.createWith(ctx, name, splitKeys, expiry)
}

// createTable repeats the request until none of its split keys is pending. After the first
// successful step, only ctx limits the retries if it has a deadline; otherwise each step has
// OperationTimeout.
func (m *Meta) createTable(ctx context.Context, req *pb.CreateTableRequest) error {
	timeout := m.timeout
	pending := 0
	for {
		t, err := retryFor(ctx, m, timeout, func() (*pb.Table, error) {
			return m.transport.CreateTable(ctx, req)
		})
		switch {
		case err != nil && pending > 0:
			return Errorf("%w; %d of the %d split keys of table %q are left: the same CreateTable "+
				"continues with them, and dropping the table abandons them", err, pending, len(req.SplitKeys), req.Name)
		case err != nil:
			return err
		}
		if pending = wire.PendingSplits(t, req); pending == 0 {
			return nil
		}
		if deadline, ok := ctx.Deadline(); ok {
			timeout = max(timeout, time.Until(deadline))
		}
	}
}

// DropTable drops the table that currently has the name; it returns ErrNoTable if there is none and
// no drop to finish. The request carries the table's id, so that a retry cannot drop a new table of
// the same name.
func (m *Meta) DropTable(ctx context.Context, name string) error {
	tables, err := m.Tables(ctx)
	if err != nil {
		return err
	}
	id := mvcc.TableID(0) // no table, but possibly an unfinished drop
	for _, t := range tables {
		if t.GetName() == name {
			id = mvcc.TableID(t.GetId())
		}
	}
	attempts := 0
	_, err = retry(ctx, m, func() (struct{}, error) {
		attempts++
		return struct{}{}, m.transport.DropTable(ctx, name, id)
	})
	m.forget()
	if attempts > 1 && errors.Is(err, ErrNoTable) {
		return nil // an earlier attempt, whose answer was lost, has finished the drop
	}
	return err
}

// SetExpiry replaces the expiry of a table; nil removes it.
func (m *Meta) SetExpiry(ctx context.Context, table string, expiry *pb.TableExpiry) error {
	if err := m.allowExpiry(ctx); err != nil {
		return err
	}
	tables, err := m.Tables(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(tables, func(t *pb.Table) bool { return t.Name == table })
	if i < 0 {
		return Errorf("%w: %q", ErrNoTable, table)
	}
	req := &pb.SetTableExpiryRequest{Name: table, Id: tables[i].Id, Expiry: expiry}
	_, err = retry(ctx, m, func() (*pb.SetTableExpiryResponse, error) {
		return m.admin().SetTableExpiry(ctx, req)
	})
	return err
}

// allowExpiry returns an error if some nodes may run a build without expiry, which would ignore
// that of a table to be created.
func (m *Meta) allowExpiry(ctx context.Context) error {
	policy, err := retry(ctx, m, func() (*pb.ClusterPolicyResponse, error) {
		return m.admin().ClusterPolicy(ctx, &pb.ClusterPolicyRequest{})
	})
	if err != nil {
		return err
	}
	if err := wire.ExpiryActive(policy.GetPolicy()); err != nil {
		return Invalid("%v", err)
	}
	return nil
}

func (m *Meta) admin() pb.AdminClient { return pb.NewAdminClient(m.transport.AdminConn()) }

// Catalogue returns the catalogue of observed columns from meta.
func (m *Meta) Catalogue(ctx context.Context) (*pb.Catalogue, error) {
	return retry(ctx, m, func() (*pb.Catalogue, error) { return m.transport.Catalogue(ctx) })
}

// SplitTablet splits a tablet before the row. It is idempotent.
func (m *Meta) SplitTablet(ctx context.Context, table, row string) error {
	_, err := retry(ctx, m, func() (struct{}, error) {
		return struct{}{}, m.transport.SplitTablet(ctx, table, row)
	})
	return err
}

// TabletsOf yields the tablets that hold rows of the table, in row order.
func (m *Meta) TabletsOf(ctx context.Context,
	table mvcc.TableID) iter.Seq2[*pb.TabletDescriptor, error] {
	return func(yield func(*pb.TabletDescriptor, error) bool) {
		for at := (wire.Position{Table: table}); at.Table == table; {
			page, err := retry(ctx, m, func() ([]*pb.TabletDescriptor, error) {
				return m.transport.Locate(ctx, at.Table, at.Row, locatePage)
			})
			if err == nil && len(page) == 0 {
				err = Errorf("%w: no tablet holds row %q of table %d", ErrUnavailable, at.Row, at.Table)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			for _, d := range page {
				if wire.StartOf(d).Table > table || !yield(d, nil) {
					return
				}
				end, bounded := wire.EndOf(d)
				if !bounded {
					return
				}
				at = end
			}
		}
	}
}

// NodeStatus returns the status of the node that answers.
func (m *Meta) NodeStatus(ctx context.Context) (*pb.NodeStatusResponse, error) {
	return retry(ctx, m, func() (*pb.NodeStatusResponse, error) {
		return m.transport.NodeStatus(ctx)
	})
}

// Observers lists the catalogue's observers with their pending notifications.
func (m *Meta) Observers(ctx context.Context) ([]*pb.ObserverState, error) {
	return retry(ctx, m, func() ([]*pb.ObserverState, error) { return m.transport.Observers(ctx) })
}

// retry repeats an idempotent request to meta until it is answered, ctx ends or
// OperationTimeout.
func retry[T any](ctx context.Context, m *Meta, ask func() (T, error)) (T, error) {
	return retryFor(ctx, m, m.timeout, ask)
}

// retryFor is retry with its own timeout.
func retryFor[T any](ctx context.Context, m *Meta, timeout time.Duration,
	ask func() (T, error)) (T, error) {
	var wait Retry
	for {
		// A closed transport fails like an unavailable node, and would be retried until ctx ends or
		// OperationTimeout.
		if m.work.Closed() {
			var none T
			return none, ErrClosed
		}
		v, err := ask()
		if err == nil {
			return v, nil
		}
		if err = adminError(err); Permanent(err) {
			return v, err
		}
		if err := wait.Again(ctx, timeout, AskLater, err); err != nil {
			return v, err
		}
	}
}
