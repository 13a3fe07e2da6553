package promclient_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/txn/txntest"
	"github.com/percolator-go/percolator/promclient"
)

// open returns an in-memory database in place of percolator.Dial.
func open() *percolator.DB {
	return handle.NewDB(txn.NewClient(txntest.New().Process(1, 1), txn.Config{}))
}

// A program registers its DB once. Its own /metrics handler (promhttp.Handler for the default
// registry) then exports the transactions too.
func ExampleCollector() {
	ctx := context.Background()
	db := open() // in a program: percolator.Dial
	defer handle.Client(db).Close()
	registry := prometheus.NewRegistry()
	registry.MustRegister(promclient.Collector(db))

	if err := db.CreateTable(ctx, percolator.TableSpec{Name: "bank"}); err != nil {
		fmt.Println(err)
		return
	}
	err := db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		tx.Set("Bob", percolator.Column{Table: "bank", Name: "balance"}, []byte("10"))
		return nil
	}, percolator.Name("deposit"))
	if err != nil {
		fmt.Println(err)
		return
	}
	families, err := registry.Gather()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, f := range families {
		if f.GetName() != "percolator_txn_named_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			fmt.Println(m.GetLabel()[0].GetValue(), m.GetLabel()[1].GetValue(), m.GetCounter().GetValue())
		}
	}
	// Output:
	// deposit committed 1
	// deposit conflict 0
	// deposit failed 0
}

// TestCollector: every collected metric is described, and any transaction name is a valid
// label.
func TestCollector(t *testing.T) {
	db := open()
	defer handle.Client(db).Close()
	c := promclient.Collector(db)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	err := db.Transact(t.Context(), func(context.Context, *percolator.Tx) error { return nil },
		percolator.Name("reads\xffnothing"))
	if err != nil {
		t.Error(err)
	}
	families, err := registry.Gather()
	if err != nil || len(families) < 10 {
		t.Errorf("%d families, %v", len(families), err)
	}
	if err := registry.Register(promclient.Collector(db)); err == nil {
		t.Error("a registry accepted two DBs without labels")
	}
}
