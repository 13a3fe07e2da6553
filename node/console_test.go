package node_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/health"
	"github.com/percolator-go/percolator/node"
	"github.com/percolator-go/percolator/test/browser"
)

// consolePages are the console's pages with their content for a healthy cluster.
var consolePages = map[string]string{
	"overview": "Nodes that may fail", "nodes": "round trip", "tablets": "replicas on nodes",
	"observers": "Waiting: changed rows", "locks": "lock ls",
	"internals": "Raft log", "oracle": "Timestamp oracle", "jobs": "Collection of old versions", "cells": "Row prefix",
	"heat": "Tablet load, last hour", "mailboxes": "batch sizes", "trace": "The transaction that wrote a cell",
}

// TestConsole: in a browser, while nodes of a cluster of three stop: each page displays its
// content, and the overview names parked runs, old locks, the stopped node and the loss of the
// quorum, with remedies. The browser sends no request to another host and logs no error, except for
// invalid requests.
func TestConsole(t *testing.T) {
	b := browser.Start(t)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	column := percolator.Column{Table: "input", Name: "c"}
	r := three(ctx, t, 3, func(_ int, c *node.Config) {
		c.HTTP, c.Placement.GoneAfter = "127.0.0.1:0", time.Hour
		c.Observers = func(r *percolator.Registry) {
			r.Strong("broken", column, func(context.Context, *percolator.Tx,
				percolator.Notification) error {
				return errors.New("no: a row may not be called " + evil)
			}, percolator.MaxAttempts(1))
			r.Strong("copies", percolator.Column{Table: "input", Name: "from"}, func(_ context.Context,
				tx *percolator.Tx, n percolator.Notification) error {
				tx.Set(n.Row, percolator.Column{Table: "input", Name: "to " + evil}, []byte("copied"))
				return nil
			})
		}
	})
	asked := r.nodes[2]
	address := "http://" + asked.HTTPAddr() + "/"
	v := visitor{t, b, address}
	says := v.sees

	b.Open(address)
	says("a sound cluster", "No problems found.")
	for page, text := range consolePages {
		v.goes(page, text)
		v.looks("sound-" + page)
	}
	v.seesCells(ctx, asked.DB())
	v.seesTrace(ctx, asked.DB())
	v.seesLoad()
	v.seesContention(ctx, asked.DB())
	if err := set(ctx, asked.DB(), "row", column, []byte("x")); err != nil {
		t.Fatal(err)
	}
	v.finds(ctx, health.ObserverParked, "notify replay broken --all-parked")
	v.goes("cells?table=input&row=row", "Parked: broken")
	says("its error on the row's page", "no: a row may not be called "+evil)
	v.looks("parked-row")
	v.goes("observers?name=broken", "Rows whose runs failed as often as allowed")
	says("its error", "no: a row may not be called "+evil)
	v.looks("parked")
	v.logsIn(ctx, asked)
	v.presses("observers?name=broken", "Replay broken, row row", "", "Done: 1 will run again.")
	leaveOldLock(ctx, t, asked)
	v.finds(ctx, health.LockOld, "lock resolve --all")

	r.crash(0)
	v.finds(ctx, health.NodeAway, "Start it again")
	says("no node may fail", "the next node failure loses a quorum")
	v.seesAll("away")
	v.goes("nodes", "away")

	r.crash(1)
	v.finds(ctx, health.NoQuorum, "Start these nodes again")
	says("there is no quorum", "No quorum")
	for _, page := range []string{"overview", "nodes", "tablets", "jobs", "internals", "oracle"} {
		v.goes(page, "No quorum")
		v.looks("no-quorum-" + page)
	}

	seen := slices.DeleteFunc(b.Alarms(), func(alarm string) bool { // of invalid requests
		return strings.Contains(alarm, "status of 400")
	})
	if len(seen) > 0 {
		t.Errorf("the browser complains: %q", seen)
	}
	own := strings.TrimSuffix(strings.TrimPrefix(address, "http://"), "/")
	if hosts := b.Hosts(); !slices.Equal(hosts, []string{own}) {
		t.Errorf("requests went to %q, not to %s alone", hosts, own)
	}
	// An open stream does not delay the node's shutdown.
	r.stop(2)
	says("the node is gone", "Use another node")
	b.Screenshot("gone")
}
