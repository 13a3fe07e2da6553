package rpc

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/certs"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// This file keeps from callers what answers tell of tables that they have no grant for:
// names, split keys, ranges of tablets, observers and rows. The Guard calls it for each
// call, the workers of streams for some answers of tablets. It keeps nothing. Answers are
// shared with others, so what it changes is a copy.

// visibilityFilter holds the tables hidden from a caller: their ids and names.
type visibilityFilter map[uint32]string

// filterFor returns the tables that have grants, none of them the caller's. What was read
// too long ago is no grant.
func (g *grants) filterFor(who Caller) visibilityFilter {
	tables, at := g.now()
	if len(tables) == 0 || who.Role.Includes(certs.Operator) {
		return nil
	}
	var h visibilityFilter
	for id, t := range tables {
		if _, granted := t.roles[who.Name]; granted && !tooOld(at) {
			continue
		}
		if h == nil {
			h = visibilityFilter{}
		}
		h[id] = t.table
	}
	return h
}

// has reports whether the table is one of them.
func (h visibilityFilter) has(table mvcc.TableID) bool {
	_, ok := h[uint32(table)]
	return ok
}

// refuseNamed returns why the caller may not make the call because of the table that it
// names itself or by its observer, nil if it may. What names none that there is, is for
// the service to refuse.
func (g *Guard) refuseNamed(ctx context.Context, who Caller, req any) (*pb.Error, error) {
	if tables, _ := g.grants.now(); len(tables) == 0 || who.Role.Includes(certs.Operator) {
		return nil, nil
	}
	switch r := req.(type) {
	case *pb.CreateTableRequest:
		tables, err := g.schema.Tables(ctx)
		at := slices.IndexFunc(tables, func(t *pb.Table) bool {
			return t.Name == r.Name && t.DroppedTs == 0
		})
		if err != nil || at < 0 {
			return nil, err
		}
		// The answer has the keys that it was split at. To add some changes it.
		needs := certs.Reader
		if len(r.SplitKeys) > 0 {
			needs = certs.Writer
		}
		return g.grants.refuseTable(who, tables[at].Id, "CreateTable", needs), nil
	case *pb.BackfillRequest:
		needs := certs.Writer // it has every row run again, as if it was written
		if asksBackfill(r) {
			needs = certs.Reader
		}
		return g.refuseObserver(ctx, who, r.Name, "Backfill", needs)
	case *pb.ReplayParkedRequest:
		return g.refuseObserver(ctx, who, r.Name, "ReplayParked", certs.Writer)
	case *pb.ReplayRowRequest:
		return g.refuseObserver(ctx, who, r.Name, "ReplayRow", certs.Writer)
	}
	return nil, nil
}

// refuseObserver is refuseNamed for a call that names an observer.
func (g *Guard) refuseObserver(ctx context.Context, who Caller, name, what string,
	needs certs.Role) (*pb.Error, error) {
	catalogue, err := g.schema.Catalogue(ctx)
	if err != nil {
		return nil, err
	}
	for _, o := range catalogue.GetObservers() {
		if o.Name == name {
			return g.grants.refuseTable(who, o.Table, what, needs), nil
		}
	}
	if len(g.grants.filterFor(who)) > 0 { // the service would name those that there are
		return &pb.Error{Code: pb.Error_CODE_INVALID, Message: fmt.Sprintf("there is no observer %q", name)}, nil
	}
	return nil, nil
}

// narrow returns the answer without what is hidden, or why there is none.
func (h visibilityFilter) narrow(req, resp any) (any, *pb.Error) {
	m, ok := resp.(proto.Message)
	if len(h) == 0 || !ok || m == nil {
		return resp, nil
	}
	switch m.(type) {
	case *pb.TablesResponse, *pb.LocateResponse, *pb.Catalogue, *pb.NodeStatusResponse,
		*pb.ObserversResponse, *pb.ClusterStatusResponse, *pb.DescribeTabletResponse,
		*pb.GrantsResponse, *pb.ClusterPolicyResponse:
	default:
		return resp, nil
	}
	m = proto.Clone(m)
	switch r := m.(type) {
	case *pb.TablesResponse:
		// Whoever copies or lists all tables must be able to say that some are missing.
		for i, t := range r.Tables {
			if h.has(mvcc.TableID(t.Id)) {
				r.Tables[i] = &pb.Table{Id: t.Id, Hidden: true, DroppedTs: t.DroppedTs}
			}
		}
	case *pb.LocateResponse:
		if asked, ok := req.(*pb.LocateRequest); ok {
			r.Tablets = h.located(wire.Position{
				Table: mvcc.TableID(asked.Table), Row: wire.String(asked.Row),
			}, r.Tablets)
		}
	case *pb.Catalogue:
		r.Observers = slices.DeleteFunc(r.Observers, func(o *pb.ObserverInfo) bool {
			return h.has(mvcc.TableID(o.Table))
		})
	case *pb.NodeStatusResponse:
		h.status(r, h.subjects())
	case *pb.ObserversResponse:
		r.Observers = h.observers(r.Observers, nil)
	case *pb.ClusterStatusResponse:
		subjects := h.subjects()
		r.Observers = h.observers(r.Observers, subjects)
		for _, n := range r.Nodes {
			h.status(n.Status, subjects)
		}
		r.Jobs = h.jobs(r.Jobs, subjects)
		r.Findings = slices.DeleteFunc(r.Findings, func(f *pb.Finding) bool {
			return subjects[f.Subject]
		})
	case *pb.DescribeTabletResponse:
		if r.Tablet = h.clip(r.Tablet); r.Tablet == nil {
			return nil, &pb.Error{Code: pb.Error_CODE_PERMISSION,
				Message: "the tablet is of tables that are for those who have a grant"}
		}
		for _, one := range r.Replicas {
			if one.Status != nil {
				one.Status = h.tablet(one.Status)
			}
		}
	case *pb.GrantsResponse:
		r.Grants = h.grants(r.Grants)
	case *pb.ClusterPolicyResponse:
		if r.Policy != nil {
			r.Policy.Grants = h.grants(r.Policy.Grants)
		}
	}
	return m, nil
}

// answer is narrow for the answer of a tablet: where ranges are, and what a replica says of
// itself.
func (g *grants) answer(who Caller, resp *pb.TabletResponse) *pb.TabletResponse {
	if len(resp.GetError().GetDescriptors()) == 0 && resp.GetStatus() == nil {
		return resp
	}
	h := g.filterFor(who)
	if len(h) == 0 {
		return resp
	}
	resp = proto.CloneOf(resp)
	if e := resp.Error; e != nil {
		e.Descriptors = h.clipped(e.Descriptors)
	}
	if resp.GetStatus() != nil {
		status := h.tablet(resp.GetStatus())
		if status == nil {
			return failed(pb.Error_CODE_PERMISSION, "the tablet is of tables that are for those who have a grant")
		}
		resp.Result = &pb.TabletResponse_Status{Status: status}
	}
	return resp
}

// located returns what the tablet map may tell of a position and what follows. Who meets a
// lock asks at its primary, in whatever table that is: there, it is told which tablet holds
// that one row.
func (h visibilityFilter) located(at wire.Position, found []*pb.TabletDescriptor) []*pb.TabletDescriptor {
	if !h.has(at.Table) || len(found) == 0 || !wire.Holds(found[0], at) {
		return h.clipped(found)
	}
	d := found[0]
	one := &pb.TabletDescriptor{
		TabletId: d.TabletId, Epoch: d.Epoch, Replicas: d.Replicas, NextReplicaId: d.NextReplicaId,
		StartTable: uint32(at.Table), StartRow: []byte(at.Row),
		EndTable: uint32(at.Table), EndRow: []byte(at.Row + "\x00"),
	}
	if at.Row == "" { // who lists the tablets is to get past the table
		one.EndTable, one.EndRow = one.EndTable+1, nil
	}
	rest := slices.DeleteFunc(h.clipped(found), func(d *pb.TabletDescriptor) bool {
		return wire.StartOf(d).Less(at)
	})
	return append([]*pb.TabletDescriptor{one}, rest...)
}

// clipped clips each, and leaves out of which nothing is left.
func (h visibilityFilter) clipped(all []*pb.TabletDescriptor) (out []*pb.TabletDescriptor) {
	for _, d := range all {
		if d = h.clip(d); d != nil {
			out = append(out, d)
		}
	}
	return out
}

// clip returns the tablet with a range that neither begins nor ends inside of a hidden table,
// nil if nothing else is in it.
func (h visibilityFilter) clip(d *pb.TabletDescriptor) *pb.TabletDescriptor {
	start := wire.StartOf(d)
	end, bounded := wire.EndOf(d)
	if !h.has(start.Table) && (!bounded || end.Row == "" || !h.has(end.Table)) {
		return d
	}
	for h.has(start.Table) {
		start = wire.Position{Table: start.Table + 1}
	}
	if bounded && h.has(end.Table) {
		end.Row = ""
	}
	if bounded && !start.Less(end) {
		return nil
	}
	d = proto.CloneOf(d)
	d.StartTable, d.StartRow = uint32(start.Table), []byte(start.Row)
	if bounded {
		d.EndTable, d.EndRow = uint32(end.Table), []byte(end.Row)
	}
	return d
}

// tablet returns what a replica says of itself without its rows, if it holds any that are
// hidden; nil if it holds no others.
func (h visibilityFilter) tablet(s *pb.StatusResponse) *pb.StatusResponse {
	end, bounded := wire.EndOf(s.GetTablet())
	for id := range h {
		if id >= s.GetTablet().GetStartTable() && (!bounded || mvcc.TableID(id) <= end.Table) {
			s.SizeKey, s.LoadKey = nil, nil
		}
	}
	if s.Tablet = h.clip(s.Tablet); s.Tablet == nil {
		return nil
	}
	return s
}

// subjects are what jobs and findings about hidden tables are about.
func (h visibilityFilter) subjects() map[string]bool {
	out := map[string]bool{}
	for _, name := range h {
		out["table "+name] = true
	}
	return out
}

// status takes out of what a node says of itself what is hidden.
func (h visibilityFilter) status(s *pb.NodeStatusResponse, subjects map[string]bool) {
	if s == nil {
		return
	}
	s.Tablets = slices.DeleteFunc(s.Tablets, func(t *pb.StatusResponse) bool {
		return h.tablet(t) == nil
	})
	unnamed := map[string]bool{}
	s.Observers = slices.DeleteFunc(s.Observers, func(o *pb.ObserverStatus) bool {
		gone := subjects["table "+o.Table]
		unnamed[o.Name] = unnamed[o.Name] || gone
		return gone
	})
	s.Linked = slices.DeleteFunc(s.Linked, func(name string) bool {
		return unnamed[name] || subjects["observer "+name]
	})
	s.Jobs = h.jobs(s.Jobs, subjects)
}

// observers takes out those of hidden tables, and adds them to subjects unless it is nil.
func (h visibilityFilter) observers(all []*pb.ObserverState, subjects map[string]bool) []*pb.ObserverState {
	return slices.DeleteFunc(all, func(o *pb.ObserverState) bool {
		gone := h.has(mvcc.TableID(o.GetInfo().GetTable()))
		if gone && subjects != nil {
			subjects["observer "+o.GetInfo().GetName()] = true
		}
		return gone
	})
}

func (h visibilityFilter) jobs(all []*pb.Job, subjects map[string]bool) []*pb.Job {
	return slices.DeleteFunc(all, func(j *pb.Job) bool {
		return subjects[j.Subject] || slices.ContainsFunc(j.Tables, func(name string) bool {
			return subjects["table "+name]
		})
	})
}

func (h visibilityFilter) grants(all []*pb.Grant) []*pb.Grant {
	return slices.DeleteFunc(all, func(g *pb.Grant) bool { return h.has(mvcc.TableID(g.Table)) })
}

// refuseTable returns why the caller may not do what takes the role in a table, nil if it
// may.
func (g *grants) refuseTable(who Caller, table uint32, what string, needs certs.Role) *pb.Error {
	tables, at := g.now()
	t, ok := tables[table]
	if !ok || who.Role.Includes(certs.Operator) {
		return nil
	}
	has, granted := t.roles[who.Name]
	called, name := fmt.Sprintf("%q", t.table), t.table
	if !granted { // who has no grant is not told what it is called
		called, name = fmt.Sprint(table), "NAME"
	}
	switch {
	case tooOld(at):
		return &pb.Error{Code: pb.Error_CODE_UNAVAILABLE, Message: fmt.Sprintf(
			"the grants of table %s could not be read from meta for %v: try again, or ask another node",
			called, grantsAge)}
	case !has.Includes(needs):
		return &pb.Error{Code: pb.Error_CODE_PERMISSION, Message: fmt.Sprintf(
			"table %s is for those who have a grant, and %q has none that allows %s: an operator "+
				"gives it by `percolator grant %s %s --table %s`", called, who.Name, what,
			needs, who.Name, name)}
	}
	return nil
}
