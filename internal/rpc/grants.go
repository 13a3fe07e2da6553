package rpc

import (
	"sync/atomic"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/certs"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// Grants restrict a certificate's role to tables. Every node checks its own clients' requests
// before it forwards them, and nodes accept forwarded requests only from nodes, so the check
// cannot be bypassed. The workers of all streams call it. It owns the grants by table, which
// it rebuilds when the node has read a newer policy.

// grantsAge is the maximum age of the known grants. With older ones the node refuses all clients
// but operators the tables that have grants: a node that cannot reach meta must not use stale
// grants forever. A node reads them every ten seconds.
const grantsAge = 30 * time.Second

// tooOld reports whether grants read at that time are too old to use.
func tooOld(at time.Time) bool { return time.Since(at) > grantsAge }

// grants evaluates the grants of the cluster's policy.
type grants struct {
	read func() (*pb.Policy, time.Time) // ServerConfig.Policy; nil: no grants
	last atomic.Pointer[grantsByTable]
}

// grantsByTable are the grants of one version of the policy. It is immutable.
type grantsByTable struct {
	policy *pb.Policy
	tables map[uint32]tableGrants
}

// tableGrants are the grants of one table: a role for each name.
type tableGrants struct {
	table string
	roles map[string]certs.Role
}

// now returns the node's latest grants and the time at which it read them.
func (g *grants) now() (map[uint32]tableGrants, time.Time) {
	if g.read == nil {
		return nil, time.Time{}
	}
	policy, at := g.read()
	last := g.last.Load()
	if last == nil || last.policy != policy {
		last = &grantsByTable{policy, map[uint32]tableGrants{}}
		for _, one := range policy.GetGrants() {
			if last.tables[one.Table].roles == nil {
				last.tables[one.Table] = tableGrants{one.TableName, map[string]certs.Role{}}
			}
			last.tables[one.Table].roles[one.Name] = certs.Role(one.Role)
		}
		g.last.Store(last)
	}
	return last.tables, at
}

// refuse returns an error unless the caller has a grant with the operation's role for each table of
// the request that has grants. Operators need none. admit must have accepted the request. A caller without
// a write grant may still check the status of a transaction whose lock it has encountered
// elsewhere, as readers do.
func (g *grants) refuse(who Caller, req *pb.TabletRequest) *pb.Error {
	tables, at := g.now()
	if len(tables) == 0 || who.Role.Includes(certs.Operator) {
		return nil
	}
	op := wire.OperationOf(req)
	needs := operationRoles[op.Clients]
	if op.Clients == wire.AccessObserve { // grants name no Observer: an acknowledgment is a write
		needs = certs.Writer
	}
	for _, id := range tablesOf(req) {
		if check := req.GetCheckTxnStatus(); check != nil {
			if t, ok := tables[id]; ok && (tooOld(at) || !t.roles[who.Name].Includes(certs.Writer)) {
				weaken(req, check)
			}
			continue
		}
		if e := g.refuseTable(who, id, op.Name, needs); e != nil {
			return e
		}
		// Meta's records contain names of tables, split keys and grants, so a caller from whom a
		// table is hidden may not read them.
		if mvcc.TableID(id) < mvcc.FirstUserTable && len(g.filterFor(who)) > 0 {
			return errorOf(pb.Error_CODE_PERMISSION,
				"the cluster's own records name tables for which %q has no grant: only operators may read them",
				who.Name)
		}
	}
	return nil
}

// tablesOf returns the tables whose rows the request reads or changes, possibly with
// duplicates. A timer counts as an access to the table that it notifies.
func tablesOf(req *pb.TabletRequest) (ids []uint32) {
	s := wire.SubjectOf(req)
	cell := func(c *pb.Cell) {
		id := c.GetTable()
		if mvcc.TableID(id) == mvcc.TimerTable {
			target, _ := mvcc.TimerTarget(wire.Cell(c))
			id = uint32(target)
		}
		ids = append(ids, id)
	}
	// Include the primary of a prewrite. A lock whose primary is in a table that its owner may
	// not write could roll back another client's transaction there, and clients with the same
	// grants could not end it.
	if s.HasCell {
		cell(s.Cell)
	}
	for _, w := range s.Writes {
		cell(w.GetCell())
	}
	for _, c := range s.Named { // likewise
		cell(c)
	}
	for _, c := range s.Cells {
		cell(c)
	}
	for _, c := range s.Intents {
		cell(c)
	}
	if s.Span != nil {
		ids = append(ids, s.Span.GetTable())
	}
	switch op := req.Op.(type) {
	case *pb.TabletRequest_Walk:
		ids = append(ids, op.Walk.GetTable())
	case *pb.TabletRequest_History:
		ids = append(ids, op.History.GetTable())
	}
	return ids
}
