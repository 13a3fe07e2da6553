// Command greet stores a greeting for every name.
package main

import (
	"context"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/app"
)

var (
	name     = percolator.Column{Table: "people", Name: "name"}
	greeting = percolator.Column{Table: "people", Name: "greeting"}
)

func main() {
	app.Main(func(r *percolator.Registry) {
		r.Strong("greet", name, greet)
	})
}

// greet runs in a separate transaction after a change of a name.
func greet(ctx context.Context, tx *percolator.Tx, n percolator.Notification) error {
	who, ok, err := tx.Get(ctx, n.Row, name)
	if err != nil {
		return err
	}
	if !ok { // the name was deleted
		tx.Delete(n.Row, greeting)
		return nil
	}
	tx.Set(n.Row, greeting, []byte("Hello, "+string(who)+"!"))
	return nil
}
