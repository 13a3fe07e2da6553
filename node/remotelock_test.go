package node_test

import (
	"errors"
	"testing"

	percolator "github.com/percolator-go/percolator"
)

// TestLockAndValidateRemotely: of two transactions over the network that each lock or validate the
// cell that the other writes, the second to commit is refused.
func TestLockAndValidateRemotely(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	n := open(t, "", nil)
	db, err := percolator.Dial(ctx, []string{n.Addr()}, percolator.ClientConfig{Insecure: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if err := db.CreateTable(ctx, percolator.TableSpec{Name: "t", SplitKeys: []string{"m"}}); err != nil {
		t.Fatal(err)
	}
	col := percolator.Column{Table: "t", Name: "c"}
	for name, guard := range map[string]func(*percolator.Tx, string, percolator.Column){
		"lock": (*percolator.Tx).Lock, "validate": (*percolator.Tx).Validate,
	} {
		begin := func(reads, writes string) *percolator.Tx {
			tx, err := db.Begin(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := tx.Get(ctx, reads, col); err != nil {
				t.Fatal(err)
			}
			guard(tx, reads, col)
			tx.Set(writes, col, []byte("v"))
			return tx
		}
		one, two := begin("a"+name, "z"+name), begin("z"+name, "a"+name)
		if _, err := one.Commit(ctx); err != nil {
			t.Errorf("%s: the first: %v", name, err)
		}
		if _, err := two.Commit(ctx); !errors.Is(err, percolator.ErrConflict) && !errors.Is(err, percolator.ErrLocked) {
			t.Errorf("%s: the second: %v", name, err)
		}
	}
}
