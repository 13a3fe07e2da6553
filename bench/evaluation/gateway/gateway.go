// Package gateway measures transactions over the gateway of a node (docs/adr/0071), by Connect and
// gRPC, beside the same transactions of the native client.
package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	percolator "github.com/percolator-go/percolator"
	gw "github.com/percolator-go/percolator/api/gateway/v1"
	"github.com/percolator-go/percolator/bench/evaluation/harness"
	"github.com/percolator-go/percolator/bench/turns"
	"github.com/percolator-go/percolator/node"
)

// Measurements returns the measurement.
func Measurements() []harness.Measurement {
	return []harness.Measurement{{
		Name: "gateway", Title: "Transactions over the gateway", Budget: 2 * time.Minute, Run: run,
	}}
}

// Operations. Each caller has a row of its own.
const (
	read      = "read"                // of one cell
	write     = "write"               // of one cell
	increment = "read, then write it" // interactive: four calls of the gateway
)

var operations = []string{read, write, increment}

const (
	native = "native client"
	ratios = "gateway / native client (64 callers)"
	rates  = "64 callers"
	alone  = "1 caller"
)

var cell = percolator.Column{Table: "cells", Name: "c"}

// client performs the operations by one protocol.
type client struct {
	name  string
	write func(ctx context.Context, row, value string) error
	read  func(ctx context.Context, row string) (string, error)
	// increment adds 1 to the number in the row.
	increment func(ctx context.Context, row string) error
}

func run(ctx context.Context, r *harness.Run) (err error) {
	cfg := node.DefaultConfig()
	cfg.Dir, cfg.Listen, cfg.HTTP, cfg.Insecure = filepath.Join(r.Dir, "node"), "127.0.0.1:0", "", true
	cfg.Gateway = "127.0.0.1:0"
	n, err := node.Open(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Close(context.WithoutCancel(ctx))) }()
	if err := n.DB().CreateTable(ctx, percolator.TableSpec{Name: cell.Table}); err != nil {
		return err
	}
	db, err := percolator.Dial(ctx, []string{n.Addr()}, percolator.ClientConfig{Insecure: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	r.Note("One node and the callers share one process, plain text on loopback. The native client reads and writes through Dial; the gateway is one hop more. Writes have no idempotency key.")
	clients, all := []client{ofDB(db)}, protocols()
	defer func() {
		for _, p := range all {
			p.http.CloseIdleConnections()
		}
	}()
	for _, p := range all {
		clients = append(clients, ofGateway(p.name, gw.NewGatewayClient(p.http, "http://"+n.GatewayAddr(), p.options...)))
	}
	return measure(ctx, r, clients)
}

// protocol is a way to call the gateway.
type protocol struct {
	name    string
	http    *http.Client
	options []connect.ClientOption
}

func protocols() []protocol {
	http1 := &http.Transport{MaxIdleConnsPerHost: 64}
	http2 := func() *http.Client {
		t := &http.Transport{Protocols: &http.Protocols{}}
		t.Protocols.SetUnencryptedHTTP2(true)
		return &http.Client{Transport: t}
	}
	return []protocol{
		{"Connect, JSON, HTTP/1.1", &http.Client{Transport: http1}, []connect.ClientOption{connect.WithProtoJSON()}},
		{"Connect, protobuf, HTTP/2", http2(), nil},
		{"gRPC", http2(), []connect.ClientOption{connect.WithGRPC()}},
	}
}

// measure measures all operations by each client, by turns.
func measure(ctx context.Context, r *harness.Run, clients []client) error {
	d := time.Second
	if r.Smoke {
		d = 50 * time.Millisecond
	}
	for range r.Rounds {
		for _, operation := range operations {
			for _, callers := range []int{1, 64} {
				perSecond := map[string]float64{}
				for _, c := range clients {
					rate, err := c.repeat(ctx, r, operation, callers, d)
					if err != nil {
						return fmt.Errorf("%s by %s with %d callers: %w", operation, c.name, callers, err)
					}
					perSecond[c.name] = rate
				}
				for name, rate := range perSecond {
					if callers == 64 && name != native {
						r.Ratio(ratios, operation+", "+name, rate/perSecond[native], "")
					}
				}
			}
		}
		slices.Reverse(clients)
	}
	return nil
}

// repeat measures one operation and returns its rate. Afterwards each caller's row must have the value that its last operation has
// written.
func (c *client) repeat(ctx context.Context, r *harness.Run, operation string, callers int, d time.Duration) (float64, error) {
	done := make([]atomic.Int64, callers) // operations of each caller
	for caller := range callers {
		if err := c.write(ctx, rowOf(caller), "0"); err != nil {
			return 0, err
		}
	}
	used := harness.CPUOf()
	f, err := turns.Repeat(ctx, callers, d/5, d, func(ctx context.Context, caller, _ int) (err error) {
		row, n := rowOf(caller), done[caller].Load()+1
		switch operation {
		case read:
			_, err = c.read(ctx, row)
			n = 0
		case write:
			err = c.write(ctx, row, strconv.FormatInt(n, 10))
		case increment:
			err = c.increment(ctx, row)
		}
		if err == nil {
			done[caller].Store(n)
		}
		return err
	})
	used = harness.CPUOf() - used
	if err != nil {
		return 0, err
	}
	for caller := range callers {
		got, err := c.read(ctx, rowOf(caller))
		if want := strconv.FormatInt(done[caller].Load(), 10); err == nil && got != want {
			err = fmt.Errorf("%s is %q, want %q, which its last operation has written", rowOf(caller), got, want)
		}
		if err != nil {
			return 0, err
		}
	}
	table := rates
	if callers == 1 {
		table = alone
	}
	row := operation + ", " + c.name
	r.Value(table, row, "/s", f.PerSecond)
	r.Value(table, row, "ms p50", f.Millis(0.5)[0])
	r.Value(table, row, "ms p99", f.Millis(0.99)[0])
	r.Value(table, row, "µs CPU", float64(used.Microseconds())/(f.PerSecond*1.2*d.Seconds()))
	return f.PerSecond, nil
}

func rowOf(caller int) string { return "row" + strconv.Itoa(caller) }
