package rpc

import (
	"fmt"
	"sync/atomic"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/certs"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// This file narrows what a certificate's role allows to the tables that its name has a
// grant for. Every node looks at what its own clients ask, before it sends it on, and only
// nodes may ask nodes: so no way leads round it. The workers of all streams call it. It
// owns the grants by table, made anew when the node has read a newer policy.

// grantsAge is how old what is known of grants may be for tables that have some: a node
// that meta does not answer must not go on for ever by what it knew. A node reads them
// every ten seconds.
const grantsAge = 30 * time.Second

// tooOld reports whether what was read at that time says nothing of tables with grants.
func tooOld(at time.Time) bool { return time.Since(at) > grantsAge }

// grants are those of the cluster's policy.
type grants struct {
	read func() (*pb.Policy, time.Time) // nil: there are none
	last atomic.Pointer[grantsByTable]
}

// grantsByTable are the grants of one version of the policy. It is immutable.
type grantsByTable struct {
	policy *pb.Policy
	tables map[uint32]tableGrants
}

// tableGrants are those of a table that has some: a role for each name.
type tableGrants struct {
	table string
	roles map[string]certs.Role
}

// now returns the grants that the node knows, and when it read them.
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

// refuse returns why the caller may not do the operation on one of its tables, nil if it
// may. The request is complete. Who may not write a table may still ask there what became of
// a transaction whose lock it has met elsewhere, as readers do.
func (g *grants) refuse(who Caller, req *pb.TabletRequest) *pb.Error {
	tables, at := g.now()
	if len(tables) == 0 || who.Role.Includes(certs.Operator) {
		return nil
	}
	op := wire.OperationOf(req)
	needs := operationRoles[op.Clients]
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
		// Names of tables, where they are split, and what was granted to whom.
		if mvcc.TableID(id) < mvcc.FirstUserTable && len(g.filterFor(who)) > 0 {
			return &pb.Error{Code: pb.Error_CODE_PERMISSION, Message: fmt.Sprintf(
				"the cluster's own records tell of tables that %q has no grant for: they are for operators",
				who.Name)}
		}
	}
	return nil
}

// tablesOf returns the tables whose rows the request reads or changes, some of them
// several times. A timer counts for the table that it notifies.
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
	// Also the primary of a prewrite, which is of the transaction. A lock that named a cell of a
	// table where its owner may not write could have another's transaction rolled back there,
	// and nobody with his grants could end it.
	if s.HasCell {
		cell(s.Cell)
	}
	for _, w := range s.Writes {
		cell(w.GetCell())
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
