package txn

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/coded"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// maxTableName bounds a table's name in bytes.
const maxTableName = 255

// tableNames caches the ids of tables. Ids are never reused, so a cached id is at worst
// that of a dropped table; a tablet then answers CODE_NO_TABLE and the cache is emptied.
type tableNames struct {
	ids atomic.Pointer[map[string]mvcc.TableID]
	// asking holds a token while meta is asked, so that one request is under way at a
	// time. It is not a mutex, because waiters have deadlines.
	asking chan struct{}
}

// meta sends requests to the cluster's meta tablet, and retries them.
type meta struct {
	transport Transport
	cfg       *Config
	work      *background // whether the client is closed
	names     tableNames
}

// known returns the cached id of a table.
func (n *tableNames) known(name string) (mvcc.TableID, bool) {
	m := n.ids.Load()
	if m == nil {
		return 0, false
	}
	id, ok := (*m)[name]
	return id, ok
}

// forget empties the cache.
func (n *tableNames) forget() { n.ids.Store(nil) }

// learn replaces the cache by meta's answer.
func (n *tableNames) learn(tables []*pb.Table) {
	m := make(map[string]mvcc.TableID, len(tables))
	for _, t := range tables {
		if t.DroppedTs == 0 && t.Restoring == nil && !t.Hidden {
			m[t.Name] = mvcc.TableID(t.Id)
		}
	}
	n.ids.Store(&m)
}

// TableID returns the id of the table of that name, from the cache or from meta, or
// ErrNoTable.
func (m *meta) TableID(ctx context.Context, name string) (mvcc.TableID, error) {
	if id, ok := m.names.known(name); ok {
		return id, nil
	}
	// A process that starts asks about its few tables from hundreds of goroutines at
	// once: one of them asks meta.
	select {
	case m.names.asking <- struct{}{}:
		defer func() { <-m.names.asking }()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	if id, ok := m.names.known(name); ok {
		return id, nil
	}
	tables, err := m.allTables(ctx)
	if err != nil {
		return 0, err
	}
	if id, ok := m.names.known(name); ok {
		return id, nil
	}
	for _, t := range tables {
		if t.Name == name && t.Restoring != nil {
			return 0, coded.Mark(Errorf("%w: table %q is being restored from %s, and that is not finished: "+
				"run the restore again", ErrUnavailable, name, t.Restoring.Source), ErrRestoring)
		}
	}
	if slices.ContainsFunc(tables, func(t *pb.Table) bool { return t.Hidden }) {
		return 0, Errorf("%w: %q, or this certificate has no grant for it: ask an operator for `percolator grant`",
			ErrNoTable, name)
	}
	return 0, Errorf("%w: %q", ErrNoTable, name)
}

// allTables is what meta answers: with tables that were dropped, and those that are hidden.
func (m *meta) allTables(ctx context.Context) ([]*pb.Table, error) {
	tables, err := retry(ctx, m, func() ([]*pb.Table, error) { return m.transport.Tables(ctx) })
	if err == nil {
		m.names.learn(tables)
	}
	return tables, err
}

// Tables lists the tables by name, without those that were dropped or that are hidden from
// this client, which has no grant for them.
func (m *meta) Tables(ctx context.Context) ([]*pb.Table, error) {
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

// Nothing is cached about tables that do not exist: another process may create them at any moment.

// CreateTable creates a table, or adds split keys to one that exists.
func (m *meta) CreateTable(ctx context.Context, name string, splitKeys []string) error {
	if name == "" || len(name) > maxTableName || !utf8.ValidString(name) {
		return Invalid("table name %q is not 1 to %d bytes of UTF-8", name, maxTableName)
	}
	for _, k := range splitKeys {
		if k == "" {
			return Invalid("empty split key")
		}
		if len(k) > m.cfg.Limits.Row {
			return &LimitError{Limit: "split key", Size: len(k), Max: m.cfg.Limits.Row}
		}
	}
	req := &pb.CreateTableRequest{Name: name, Stepwise: true}
	for _, k := range splitKeys {
		req.SplitKeys = append(req.SplitKeys, wire.Bytes(k))
	}
	err := m.createTable(ctx, req)
	m.names.forget()
	return err
}

// createTable repeats the request until no split key of it is pending. Once a step has
// succeeded, ctx alone ends the attempts at the next one if it has a deadline; otherwise each
// step has OperationTimeout.
func (m *meta) createTable(ctx context.Context, req *pb.CreateTableRequest) error {
	cfg := *m.cfg
	pending := 0
	for {
		t, err := retryBy(ctx, m, &cfg, func() (*pb.Table, error) {
			return m.transport.CreateTable(ctx, req)
		})
		switch {
		case err != nil && pending > 0:
			return Errorf("%w; %d of the %d split keys of table %q are left: the same CreateTable "+
				"goes on with them, and dropping the table ends it", err, pending, len(req.SplitKeys), req.Name)
		case err != nil:
			return err
		}
		if pending = wire.PendingSplits(t, req); pending == 0 {
			return nil
		}
		if deadline, ok := ctx.Deadline(); ok {
			cfg.OperationTimeout = max(cfg.OperationTimeout, time.Until(deadline))
		}
	}
}

// DropTable drops the table that has the name now: the order carries its id, so that
// another which takes the name meanwhile stays, and finding it gone is success for every
// attempt.
func (m *meta) DropTable(ctx context.Context, name string) error {
	tables, err := m.Tables(ctx)
	if err != nil {
		return err
	}
	id := mvcc.TableID(0) // there may be none, and a drop to be finished
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
	m.names.forget()
	if attempts > 1 && errors.Is(err, ErrNoTable) {
		return nil // an earlier attempt, whose answer was lost, has finished the drop
	}
	return err
}

// Catalogue returns the catalogue of observed columns.
func (m *meta) Catalogue(ctx context.Context) (*pb.Catalogue, error) {
	return retry(ctx, m, func() (*pb.Catalogue, error) { return m.transport.Catalogue(ctx) })
}

// SplitTablet splits a tablet before the row. It may be repeated.
func (m *meta) SplitTablet(ctx context.Context, table, row string) error {
	_, err := retry(ctx, m, func() (struct{}, error) {
		return struct{}{}, m.transport.SplitTablet(ctx, table, row)
	})
	return err
}

// NodeStatus describes the node that answers.
func (m *meta) NodeStatus(ctx context.Context) (*pb.NodeStatusResponse, error) {
	return retry(ctx, m, func() (*pb.NodeStatusResponse, error) {
		return m.transport.NodeStatus(ctx)
	})
}

// Observers lists the catalogue's observers with what waits for them.
func (m *meta) Observers(ctx context.Context) ([]*pb.ObserverState, error) {
	return retry(ctx, m, func() ([]*pb.ObserverState, error) { return m.transport.Observers(ctx) })
}

// retry repeats an idempotent request to meta until it is answered, ctx ends or
// OperationTimeout.
func retry[T any](ctx context.Context, m *meta, ask func() (T, error)) (T, error) {
	return retryBy(ctx, m, m.cfg, ask)
}

// retryBy is retry with another configuration than the client's.
func retryBy[T any](ctx context.Context, m *meta, cfg *Config,
	ask func() (T, error)) (T, error) {
	var wait retryPolicy
	for {
		// A closed transport fails like a node that is away, and would be retried for as
		// long as ctx allows.
		if m.work.closed.Load() {
			var none T
			return none, ErrClosed
		}
		v, err := ask()
		if err == nil {
			return v, nil
		}
		if err = adminError(err); permanent(err) {
			return v, err
		}
		if err := wait.again(ctx, cfg, askLater, err); err != nil {
			return v, err
		}
	}
}
