package meta

import (
	"errors"
	"fmt"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster/route"
	"github.com/percolator-go/percolator/internal/txn"
)

// Meta combines the topics. Each is a type over records (records.go) without a cache, so any
// number of goroutines and nodes may use it concurrently. Every method runs on its caller's
// goroutine and blocks for at least one round trip to the leader of meta. A conditional write
// whose response was lost may still be in flight; records.swap determines its outcome.

// Meta groups the records of the meta tablet by topic. It has no methods: callers hold the topics
// that they need.
type Meta struct {
	Tablets   *TabletMap
	Nodes     *NodeTable
	Moves     *Moves
	Merges    *Merges
	Policy    *Policy
	History   *History
	Observers *Observers
	Backfills *BackfillRecords
	Schema    *Schema
	Restores  *Restores
	Tokens    *Tokens
	Schedules *Schedules
	// Recoveries are the recoveries from the loss of a quorum.
	Recoveries *Recoveries
}

// New returns a Meta that sends requests to the meta tablet by send and to single replicas by ask,
// and locates user tablets by router.
func New(send route.Sender, router *route.Router, ask AskReplica) *Meta {
	r, ddl := records{send}, newDDLLock()
	tablets, policy := &TabletMap{r}, &Policy{r}
	nodes := &NodeTable{records: r, tablets: tablets}
	observers := &Observers{
		records: r, ddl: ddl, publisher: &publisher{records: r, router: router}, policy: policy,
	}
	schema := &Schema{
		records: r, router: router, tablets: tablets, policy: policy, observers: observers, ddl: ddl,
	}
	moves := &Moves{records: r, nodes: nodes}
	return &Meta{
		Tablets: tablets, Nodes: nodes, Moves: moves, Policy: policy,
		Merges:  &Merges{schema: schema, moves: moves, ask: ask},
		History: &History{r}, Observers: observers, Backfills: &BackfillRecords{r},
		Schema: schema, Restores: &Restores{schema}, Tokens: &Tokens{r},
		Schedules:  &Schedules{r},
		Recoveries: &Recoveries{records: r, nodes: nodes},
	}
}

// refuse returns a *txn.ServerError with the code and the text.
func refuse(code pb.Error_Code, format string, args ...any) error {
	return &txn.ServerError{Code: code, Message: fmt.Sprintf(format, args...)}
}

// codeOf returns the code of a rejection, CODE_UNSPECIFIED of any other error.
func codeOf(err error) pb.Error_Code {
	if refused, ok := errors.AsType[*txn.ServerError](err); ok {
		return refused.Code
	}
	return pb.Error_CODE_UNSPECIFIED
}

// refuseAs returns a rejection that also wraps why.
func refuseAs(why error, format string, args ...any) error {
	return errors.Join(refuse(pb.Error_CODE_INVALID, format, args...), why)
}
