package rpc

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/certs"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// Removal of hidden tables from answers: the names, split keys, tablet ranges, observers and
// rows of tables for which the caller has no grant. The Guard calls it for each call, the
// workers of streams for some answers of tablets. Answers are shared, so it changes copies.

// visibilityFilter maps the ids of the tables hidden from a caller to their names.
type visibilityFilter map[uint32]string

// filterFor returns the tables that have grants but none for the caller. If the grants are older
// than grantsAge, it returns all tables that have grants.
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

// has reports whether the table is hidden.
func (h visibilityFilter) has(table mvcc.TableID) bool {
	_, ok := h[uint32(table)]
	return ok
}

// refuseNamed returns an error if the caller has no grant for the table that the call names,
// directly or by an observer. It lets calls that name no existing table pass to the service.
func (g *Guard) refuseNamed(ctx context.Context, who Caller, req any) (*pb.Error, error) {
	if create, ok := req.(*pb.CreateTableRequest); ok && create.Name == OutcomesTable && !who.mayUseOutcomes() {
		return errorOf(pb.Error_CODE_PERMISSION, ofOutcomes), nil
	}
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
		// The answer contains the split keys. Adding split keys is a write.
		needs := certs.Reader
		if len(r.SplitKeys) > 0 {
			needs = certs.Writer
		}
		return g.grants.refuseTable(who, tables[at].Id, "CreateTable", needs), nil
	case *pb.BackfillRequest:
		needs := certs.Writer // a back-fill makes observers run again for every row, like a write
		if asksBackfill(r) {
			needs = certs.Reader
		}
		return g.refuseObserver(ctx, who, r.Name, "Backfill", needs)
	case *pb.ReplayParkedRequest:
		return g.refuseObserver(ctx, who, r.Name, "ReplayParked", certs.Writer)
	case *pb.ReplayRowRequest:
		return g.refuseObserver(ctx, who, r.Name, "ReplayRow", certs.Writer)
	case *pb.ObserverRunRequest:
		return g.refuseObserver(ctx, who, r.Name, "ObserverRun", certs.Reader)
	}
	return nil, nil
}

// refuseObserver returns an error if the caller lacks the role needs for the table of the named
// observer; what names the call in the error. To callers with hidden tables it reports an unknown
// observer itself, since the service's error lists the observers. Its second result is the error of
// reading the catalogue.
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
	if len(g.grants.filterFor(who)) > 0 { // the service's error would list the existing ones
		return errorOf(pb.Error_CODE_INVALID, "there is no observer %q", name), nil
	}
	return nil, nil
}

// restrictedTablet is the reason to return nothing about a tablet.
const restrictedTablet = "the tables of this tablet are restricted to clients with a grant"

// narrow returns the answer to req without hidden parts, or an error if nothing may be returned.
// Only a LocateRequest matters; without it, a LocateResponse lacks hidden tables altogether.
func (h visibilityFilter) narrow(req, resp any) (any, *pb.Error) {
	m, ok := resp.(proto.Message)
	if len(h) == 0 || !ok || m == nil {
		return resp, nil
	}
	switch m.(type) {
	case *pb.TablesResponse, *pb.LocateResponse, *pb.Catalogue, *pb.NodeStatusResponse,
		*pb.ObserversResponse, *pb.ClusterStatusResponse, *pb.DescribeTabletResponse,
		*pb.GrantsResponse, *pb.ClusterPolicyResponse, *pb.ObserverRunResponse:
	default:
		return resp, nil
	}
	m = proto.Clone(m)
	switch r := m.(type) {
	case *pb.TablesResponse:
		// Keep the ids of hidden tables: a caller that copies or lists all tables must be able to
		// report that some are missing.
		for i, t := range r.Tables {
			if h.has(mvcc.TableID(t.Id)) {
				r.Tables[i] = &pb.Table{Id: t.Id, Hidden: true, DroppedTs: t.DroppedTs}
			}
		}
	case *pb.ObserverRunResponse:
		hidden := func(c *pb.TableColumn) bool { return slices.Contains(slices.Collect(maps.Values(h)), c.GetTable()) }
		if r.Run != nil {
			r.Run.Read, r.Run.Wrote = slices.DeleteFunc(r.Run.Read, hidden), slices.DeleteFunc(r.Run.Wrote, hidden)
		}
	case *pb.LocateResponse:
		asked, _ := req.(*pb.LocateRequest) // nil: hidden tables are left out altogether
		r.Tablets = h.located(wire.Position{
			Table: mvcc.TableID(asked.GetTable()), Row: wire.String(asked.GetRow()),
		}, r.Tablets)
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
			return nil, errorOf(pb.Error_CODE_PERMISSION, restrictedTablet)
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

// answer is narrow for the answer of a tablet: its ranges and the status of a replica.
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
			return wire.Failure(pb.Error_CODE_PERMISSION, restrictedTablet)
		}
		resp.Result = &pb.TabletResponse_Status{Status: status}
	}
	return resp
}

// located filters the descriptors from a position on. If the position is in a hidden table, it
// returns the tablet there as one of that row only: a client that encounters a lock queries its
// primary, in whatever table, and may learn which tablet holds that row.
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
	if at.Row == "" { // a client that lists tablets continues at the end: after the table
		one.EndTable, one.EndRow = one.EndTable+1, nil
	}
	rest := slices.DeleteFunc(h.clipped(found), func(d *pb.TabletDescriptor) bool {
		return wire.StartOf(d).Less(at)
	})
	return append([]*pb.TabletDescriptor{one}, rest...)
}

// clipped clips each tablet, and drops those with nothing left.
func (h visibilityFilter) clipped(all []*pb.TabletDescriptor) (out []*pb.TabletDescriptor) {
	for _, d := range all {
		if d = h.clip(d); d != nil {
			out = append(out, d)
		}
	}
	return out
}

// clip returns the tablet with a range that neither begins nor ends in a hidden table, or nil
// if it holds nothing else.
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

// tablet returns a replica's status without the observers' pending notifications, and without
// SizeKey and LoadKey, which are rows, if the tablet holds hidden rows; nil if it holds only hidden
// rows.
func (h visibilityFilter) tablet(s *pb.StatusResponse) *pb.StatusResponse {
	s.Pending = nil
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

// subjects returns the subjects of jobs and findings about hidden tables.
func (h visibilityFilter) subjects() map[string]bool {
	out := map[string]bool{}
	for _, name := range h {
		out["table "+name] = true
	}
	return out
}

// status removes hidden tables from a node's status.
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
	if s.Expiry != nil {
		s.Expiry.Rules = slices.DeleteFunc(s.Expiry.Rules, func(r *pb.ExpiryRule) bool {
			return h.has(mvcc.TableID(r.Table))
		})
	}
}

// observers removes the observers of hidden tables, and adds them to subjects unless it is
// nil.
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

// refuseTable returns an error if the table has grants but none with the role for the caller, or
// if they are older than grantsAge.
func (g *grants) refuseTable(who Caller, table uint32, what string, needs certs.Role) *pb.Error {
	tables, at := g.now()
	t, ok := tables[table]
	if !ok || who.Role.Includes(certs.Operator) {
		return nil
	}
	has, granted := t.roles[who.Name]
	called, name := fmt.Sprintf("%q", t.table), t.table
	if !granted { // do not disclose the name without a grant
		called, name = fmt.Sprint(table), "NAME"
	}
	switch {
	case tooOld(at):
		return errorOf(pb.Error_CODE_UNAVAILABLE,
			"the grants of table %s could not be read from meta for %v: try again, or ask another node",
			called, grantsAge)
	case !has.Includes(needs):
		return errorOf(pb.Error_CODE_PERMISSION,
			"table %s is restricted to clients with a grant, and %q has none that allows %s: an operator "+
				"gives it by `percolator grant %s %s --table %s`", called, who.Name, what, needs, who.Name, name)
	}
	return nil
}
