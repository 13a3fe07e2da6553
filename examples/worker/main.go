// Command worker runs an observer in a process that holds no data.
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/worker"
)

var (
	name = percolator.Column{Table: "people", Name: "name"}
	loud = percolator.Column{Table: "people", Name: "loud"}
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := worker.Run(ctx, os.Args[1:], func(r *percolator.Registry) {
		r.Strong("shout", name, shout)
	}, worker.Config{
		Client: percolator.ClientConfig{Insecure: true}, // or CAFile, CertFile and KeyFile
	})
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// shout runs in a transaction after a change of a name.
func shout(ctx context.Context, tx *percolator.Tx, n percolator.Notification) error {
	who, ok, err := tx.Get(ctx, n.Row, name)
	if err != nil {
		return err
	}
	if !ok { // the name was deleted
		tx.Delete(n.Row, loud)
		return nil
	}
	tx.Set(n.Row, loud, bytes.ToUpper(who))
	return nil
}
