package rpc

import (
	"slices"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/certs"
)

// OutcomesTable is the table in which the gateways keep the answers of transactions with idempotency keys
// (docs/adr/0071). Of remote clients only operators may use it: the answers contain values of other tables,
// and a client that changed them could make another client's transaction commit twice, or not at
// all. Other clients see no such table.
//
// Every node refuses its own clients. It knows the id of the table before it performs an operation on it:
// tableIDs looks up the tables before the first operation on a higher id than it has seen.
const OutcomesTable = "percolator.outcomes"

// ofOutcomes is the reason to refuse operations on OutcomesTable.
const ofOutcomes = "the table " + OutcomesTable + " is the gateway's: it is for operators"

// mayUseOutcomes reports whether the caller may use OutcomesTable.
func (c *Caller) mayUseOutcomes() bool { return c.outcomes || c.Role.Includes(certs.Operator) }

// refuseOutcomes returns an error if the operation is on OutcomesTable and the caller may not use it. A
// caller may check the status of a transaction whose lock it has encountered elsewhere, as readers do.
func (t *tableIDs) refuseOutcomes(who Caller, req *pb.TabletRequest) *pb.Error {
	id := t.outcomes.Load()
	if id == 0 || who.mayUseOutcomes() || !slices.Contains(tablesOf(req), id) {
		return nil
	}
	if check := req.GetCheckTxnStatus(); check != nil {
		weaken(req, check)
		return nil
	}
	return errorOf(pb.Error_CODE_PERMISSION, ofOutcomes)
}

// withoutOutcomes removes OutcomesTable from the tables that a caller may not see.
func withoutOutcomes(who Caller, resp any) any {
	list, ok := resp.(*pb.TablesResponse)
	if !ok || who.mayUseOutcomes() {
		return resp
	}
	is := func(t *pb.Table) bool { return t.GetName() == OutcomesTable }
	if !slices.ContainsFunc(list.Tables, is) {
		return resp
	}
	return &pb.TablesResponse{Tables: slices.DeleteFunc(slices.Clone(list.Tables), is)}
}
