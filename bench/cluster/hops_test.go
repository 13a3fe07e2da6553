package main

import "testing"

// TestDivide: the hops of a transaction add up to its time, and bear the phase, the way between two
// nodes, and the number of their occurrence. Marks outside the transaction do not count.
func TestDivide(t *testing.T) {
	took, at := divide([]span{
		{name: "apply", node: "1", start: 40, end: 95, events: []mark{{60, "apply synced", "1"}}},
		{name: "timestamps", node: "2", start: 45, end: 50},
		{name: "transaction", start: 10, end: 100},
		{name: "commit", start: 20, end: 99},
		{name: "request", node: "1", start: 30, end: 105},
	})
	want := map[hop]int64{
		{"", "client: transaction begins"}:              0,
		{"commit", "client: up to the commit"}:          10,
		{"commit", "gRPC: client to node"}:              10,
		{"commit", "to the tablet: same node, mailbox"}: 10,
		{"commit", "to the oracle: peer link, mailbox"}: 5,
		{"commit", "oracle: issue"}:                     5,
		{"commit", "Raft: own log, sync"}:               10,
		{"commit", "tablet: answer"}:                    35,
		{"commit", "client: end of the commit"}:         4,
		{"", "client: rest of the transaction"}:         1,
	}
	sum := int64(0)
	for h, ns := range took {
		if n, ok := want[h]; !ok || n != ns {
			t.Errorf("%v took %d, want %d", h, ns, n)
		}
		sum += ns
	}
	if len(took) != len(want) || sum != 90 || at[hop{"commit", "tablet: answer"}] != 85 {
		t.Errorf("%v, %v: %d in all", took, at, sum)
	}
}
