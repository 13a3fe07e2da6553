package app_test

import (
	"context"
	"flag"
	"fmt"
	"net/http"

	"github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/app"
	"github.com/percolator-go/percolator/node"
)

// An application is one binary: "reports start" runs a node, with the application's
// tables and observers, "reports add NAME" is a command of its own.
func ExampleMain() {
	title := percolator.Typed(percolator.Column{Table: "reports", Name: "title"},
		percolator.Text[string]())
	var greeting string
	app.Main(func(r *percolator.Registry) {
		r.Table(percolator.TableSpec{Name: "reports", SplitKeys: []string{"m"}})
	},
		app.Flags(func(flags *flag.FlagSet) {
			flags.StringVar(&greeting, "greeting", "hello", "what the web server says")
		}),
		app.OnStart(func(ctx context.Context, _ *node.Node) error {
			server := &http.Server{Addr: "127.0.0.1:8080", Handler: http.HandlerFunc(
				func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, greeting) })}
			context.AfterFunc(ctx, func() { _ = server.Close() })
			if err := server.ListenAndServe(); ctx.Err() == nil {
				return err
			}
			return nil
		}),
		app.Command("add NAME TITLE", "Add a report",
			func(ctx context.Context, call *app.Invocation) error {
				db, err := call.DB(ctx)
				if err != nil {
					return err
				}
				return db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
					title.Set(tx, call.Args[0], call.Args[1])
					return nil
				})
			}))
}
