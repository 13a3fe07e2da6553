package node_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/node"
	"github.com/percolator-go/percolator/test/browser"
)

// consolePages are the console's, and what each has to show of a sound cluster.
var consolePages = map[string]string{
	"overview": "Nodes that may fail", "nodes": "answers in", "tablets": "replicas on nodes",
	"observers": "percolator observer pause", "locks": "percolator lock ls",
	"internals": "Raft log", "oracle": "Timestamp oracle", "jobs": "Collection of old versions", "cells": "Rows that begin with",
	"heat": "Heat of the tablets", "mailboxes": "batch sizes", "trace": "What wrote a cell",
}

// TestConsole: in a browser, while nodes of a cluster of three go: each page shows what it
// is for, the node that is gone, and that there is no quorum, in words that name the remedy.
// Nothing is asked of another host, and nothing is complained of.
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
	says("a sound cluster", "Nothing is wrong.")
	for page, text := range consolePages {
		b.Open(address + "#/" + page)
		says(page, text)
		b.Screenshot("sound-" + page)
	}
	v.seesCells(ctx, asked.DB())
	v.seesTrace(ctx, asked.DB())
	v.seesLoad()
	v.seesContention(ctx, asked.DB())
	b.Open(address + "#/overview")
	if err := set(ctx, asked.DB(), "row", column, []byte("x")); err != nil {
		t.Fatal(err)
	}
	says("a parked notification", "percolator notify replay broken --all-parked")
	v.goes("observers", "Parked: broken")
	says("its error", "no: a row may not be called "+evil)
	v.looks("parked")
	b.Open(address + "#/overview")
	leaveOldLock(ctx, t, asked)
	says("an old lock", "lock-old")

	r.crash(0)
	says("a node is away", "node-away")
	says("no node may fail", "the next node that fails takes a quorum with it")
	for page := range consolePages {
		b.Open(address + "#/" + page)
		says(page, consolePages[page])
		for _, scheme := range []string{"light", "dark"} {
			b.Scheme(scheme)
			b.Screenshot("away-" + page + "-" + scheme)
			if faint := b.Faint(4.5); len(faint) > 0 {
				t.Errorf("%s, %s: hard to read: %q", page, scheme, faint)
			}
		}
	}
	b.Open(address + "#/nodes")
	says("the node's state", "away")

	b.Open(address + "#/overview")
	r.crash(1)
	says("there is no quorum", "No quorum")
	says("and which tablets", "no-quorum")
	b.Screenshot("no-quorum")

	seen := slices.DeleteFunc(b.Alarms(), func(alarm string) bool { // of what was asked wrongly
		return strings.Contains(alarm, "status of 400")
	})
	if len(seen) > 0 {
		t.Errorf("the browser complains: %q", seen)
	}
	own := strings.TrimSuffix(strings.TrimPrefix(address, "http://"), "/")
	if hosts := b.Hosts(); !slices.Equal(hosts, []string{own}) {
		t.Errorf("requests went to %q, not to %s alone", hosts, own)
	}
	// An open stream does not hold the node's end up.
	r.stop(2)
	says("the node is gone", "Ask another node")
	b.Screenshot("gone")
}
