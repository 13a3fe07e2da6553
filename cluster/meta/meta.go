package meta

import (
	"errors"
	"fmt"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster/route"
	"github.com/percolator-go/percolator/internal/txn"
)

// This file puts the topics together. Each is a type over records (records.go) that keeps
// no copy of them, so any number of goroutines and nodes may use it at once. Every method
// runs on its caller's goroutine and blocks for at least one round trip to the leader of
// meta, wherever that is. What can be in flight is a conditional write whose answer was
// lost; records.swap finds out what became of it.

// Meta has the records of the meta tablet by topic. It has no methods: whoever needs
// records holds the topics that they belong to.
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
	// Recoveries are those from the loss of a quorum.
	Recoveries *Recoveries
}

// New returns a Meta that reaches the meta tablet by send and finds user tablets by
// router.
func New(send route.Sender, router *route.Router) *Meta {
	m := newTopics(send, router)
	m.Merges = &Merges{schema: m.Schema, moves: m.Moves}
	return m
}

func newTopics(send route.Sender, router *route.Router) *Meta {
	r, ddl := records{send}, newDDLLock()
	tablets, policy := &TabletMap{r}, &Policy{r}
	nodes := &NodeTable{records: r, tablets: tablets}
	observers := &Observers{records: r, ddl: ddl, publisher: &publisher{records: r, router: router}}
	schema := &Schema{
		records: r, router: router, tablets: tablets, policy: policy, observers: observers, ddl: ddl,
	}
	return &Meta{
		Tablets: tablets, Nodes: nodes, Moves: &Moves{records: r, nodes: nodes}, Policy: policy,
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

// refuseAs returns a refusal that also is why.
func refuseAs(why error, format string, args ...any) error {
	return errors.Join(refuse(pb.Error_CODE_INVALID, format, args...), why)
}
