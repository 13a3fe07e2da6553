package gateway

import (
	"context"
	"slices"
	"time"

	"connectrpc.com/connect"

	percolator "github.com/percolator-go/percolator"
	gw "github.com/percolator-go/percolator/api/gateway/v1"
	"github.com/percolator-go/percolator/internal/rpc"
	"github.com/percolator-go/percolator/internal/txn"
)

// The service Control: each method calls one of package percolator as the caller, whose role and
// grants internal/rpc checks.

// ListTables implements the service Control.
func (s *service) ListTables(ctx context.Context,
	_ *connect.Request[gw.ListTablesRequest]) (*connect.Response[gw.ListTablesResponse], error) {
	specs, err := callerIn(ctx).db.Tables(ctx)
	if err != nil {
		return nil, err
	}
	answer := &gw.ListTablesResponse{}
	for _, spec := range specs {
		if spec.Name != rpc.OutcomesTable {
			answer.Tables = append(answer.Tables, specPB(spec))
		}
	}
	return connect.NewResponse(answer), nil
}

// CreateTable implements the service Control.
func (s *service) CreateTable(ctx context.Context,
	r *connect.Request[gw.CreateTableRequest]) (*connect.Response[gw.CreateTableResponse], error) {
	spec, err := specOf(r.Msg.GetTable())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&gw.CreateTableResponse{}), callerIn(ctx).db.CreateTable(ctx, spec)
}

// specOf returns the table in the message.
func specOf(table *gw.TableSpec) (percolator.TableSpec, error) {
	spec := percolator.TableSpec{
		Name: table.GetName(), SplitKeys: slices.Clone(table.GetSplitKeys()), Expiry: expiryOf(table.GetExpiry()),
	}
	for _, k := range table.GetSplitKeysBytes() {
		spec.SplitKeys = append(spec.SplitKeys, string(k))
	}
	return spec, checkTable(spec.Name)
}

// DropTable implements the service Control.
func (s *service) DropTable(ctx context.Context,
	r *connect.Request[gw.DropTableRequest]) (*connect.Response[gw.DropTableResponse], error) {
	if err := checkTable(r.Msg.Name); err != nil {
		return nil, err
	}
	return connect.NewResponse(&gw.DropTableResponse{}), callerIn(ctx).db.DropTable(ctx, r.Msg.Name)
}

// SetExpiry implements the service Control.
func (s *service) SetExpiry(ctx context.Context,
	r *connect.Request[gw.SetExpiryRequest]) (*connect.Response[gw.SetExpiryResponse], error) {
	if err := checkTable(r.Msg.Table); err != nil {
		return nil, err
	}
	return connect.NewResponse(&gw.SetExpiryResponse{}),
		callerIn(ctx).db.SetExpiry(ctx, r.Msg.Table, expiryOf(r.Msg.Expiry))
}

// SplitTablet implements the service Control.
func (s *service) SplitTablet(ctx context.Context,
	r *connect.Request[gw.SplitTabletRequest]) (*connect.Response[gw.SplitTabletResponse], error) {
	if err := checkTable(r.Msg.Table); err != nil {
		return nil, err
	}
	row := r.Msg.GetRow() + string(r.Msg.GetRowBytes())
	return connect.NewResponse(&gw.SplitTabletResponse{}),
		callerIn(ctx).db.Admin().SplitTablet(ctx, r.Msg.Table, row)
}

// specPB returns the message of a table.
func specPB(spec percolator.TableSpec) *gw.TableSpec {
	out := &gw.TableSpec{Name: spec.Name}
	if slices.ContainsFunc(spec.SplitKeys, func(k string) bool { return !encoder{}.text(k) }) {
		for _, k := range spec.SplitKeys {
			out.SplitKeysBytes = append(out.SplitKeysBytes, []byte(k))
		}
	} else {
		out.SplitKeys = spec.SplitKeys
	}
	if spec.Expiry.After == 0 && len(spec.Expiry.Columns) == 0 {
		return out
	}
	out.Expiry = &gw.Expiry{AfterMs: uint64(spec.Expiry.After.Milliseconds())}
	for name, after := range spec.Expiry.Columns {
		c := &gw.ColumnExpiry{AfterMs: uint64(after.Milliseconds())}
		if (encoder{}).text(name) {
			c.ColumnAs = &gw.ColumnExpiry_Column{Column: name}
		} else {
			c.ColumnAs = &gw.ColumnExpiry_ColumnBytes{ColumnBytes: []byte(name)}
		}
		out.Expiry.Columns = append(out.Expiry.Columns, c)
	}
	return out
}

// maxAge is the maximum age of an Expiry, in milliseconds: longer ones overflow a time.Duration.
const maxAge = uint64(1<<63-1) / uint64(time.Millisecond)

// expiryOf returns the expiry in a message.
func expiryOf(e *gw.Expiry) percolator.Expiry {
	age := func(ms uint64) time.Duration { return time.Duration(min(ms, maxAge)) * time.Millisecond }
	out := percolator.Expiry{After: age(e.GetAfterMs())}
	for _, c := range e.GetColumns() {
		if out.Columns == nil {
			out.Columns = map[string]time.Duration{}
		}
		out.Columns[c.GetColumn()+string(c.GetColumnBytes())] = age(c.AfterMs)
	}
	return out
}

// ListObservers implements the service Control.
func (s *service) ListObservers(ctx context.Context,
	_ *connect.Request[gw.ListObserversRequest]) (*connect.Response[gw.ListObserversResponse], error) {
	observers, err := callerIn(ctx).db.Admin().Observers(ctx)
	if err != nil {
		return nil, err
	}
	answer := &gw.ListObserversResponse{}
	for _, o := range observers {
		one := observerPB(o.ObserverInfo)
		one.Notifications, one.Parked = o.Pending.Notifications, o.Pending.Parked
		one.Runs, one.Commits, one.Conflicts, one.Failures = o.Runs.Runs, o.Runs.Commits, o.Runs.Conflicts, o.Runs.Failures
		one.NodeIds = o.Runs.Nodes
		answer.Observers = append(answer.Observers, one)
	}
	return connect.NewResponse(answer), nil
}

// observerPB returns the message of an observer, without counts.
func observerPB(o percolator.ObserverInfo) *gw.Observer {
	out := &gw.Observer{
		Name: o.Name, Table: o.Column.Table, Weak: o.Weak, Paused: o.Paused, Retired: o.Retired, Limit: uint32(o.Limit),
	}
	if (encoder{}).text(o.Column.Name) {
		out.ColumnAs = &gw.Observer_Column{Column: o.Column.Name}
	} else {
		out.ColumnAs = &gw.Observer_ColumnBytes{ColumnBytes: []byte(o.Column.Name)}
	}
	return out
}

// ControlObserver implements the service Control.
func (s *service) ControlObserver(ctx context.Context,
	r *connect.Request[gw.ControlObserverRequest]) (*connect.Response[gw.ControlObserverResponse], error) {
	admin, name := callerIn(ctx).db.Admin(), r.Msg.Name
	var info percolator.ObserverInfo
	err := txn.Invalid("the request says nothing: set paused, limit or retire")
	switch action := r.Msg.Action.(type) {
	case *gw.ControlObserverRequest_Paused:
		change := admin.ResumeObserver
		if action.Paused {
			change = admin.PauseObserver
		}
		info, err = change(ctx, name)
	case *gw.ControlObserverRequest_Limit:
		info, err = admin.LimitObserver(ctx, name, int(action.Limit))
	case *gw.ControlObserverRequest_Retire:
		if action.Retire {
			info, err = admin.RetireObserver(ctx, name)
		}
	}
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&gw.ControlObserverResponse{Observer: observerPB(info)}), nil
}

// ReplayObserver implements the service Control.
func (s *service) ReplayObserver(ctx context.Context,
	r *connect.Request[gw.ReplayObserverRequest]) (*connect.Response[gw.ReplayObserverResponse], error) {
	admin, name := callerIn(ctx).db.Admin(), r.Msg.Name
	var replay *percolator.Replay
	err := txn.Invalid("the request has no known action")
	switch r.Msg.Action {
	case gw.ReplayObserverRequest_ACTION_READ:
		replay, err = admin.Replay(ctx, name)
	case gw.ReplayObserverRequest_ACTION_START:
		var started percolator.Replay
		started, err = admin.ReplayObserver(ctx, name, percolator.BelowVersion(int(r.Msg.BelowVersion)))
		replay = &started
	case gw.ReplayObserverRequest_ACTION_CANCEL:
		replay, err = admin.CancelReplay(ctx, name)
	}
	if err != nil {
		return nil, err
	}
	answer := &gw.ReplayObserverResponse{}
	if replay != nil {
		answer.State, answer.Rows = string(replay.State), replay.Rows
		if replay.Err != nil {
			answer.Error = replay.Err.Error()
		}
	}
	return connect.NewResponse(answer), nil
}
