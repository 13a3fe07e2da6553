package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/certs"
	"github.com/percolator-go/percolator/internal/txn"
)

// TestOwnerOfTables: a table counts for the client that requests it, whatever its request says, and
// for no one if that is an operator.
func TestOwnerOfTables(t *testing.T) {
	guard := NewGuard(slog.New(slog.DiscardHandler), nil, nil)
	for _, test := range []struct {
		who  Caller
		want string
	}{
		{Caller{Role: certs.Writer, Name: "amy", By: ByCertificate, From: "10.0.0.1:9"}, "amy"},
		{Caller{Role: certs.Writer, Name: "amy", By: ByToken}, "amy"},
		{Caller{Role: certs.Operator, Name: "ann", By: ByCertificate}, ""},
		{Caller{Role: certs.Client, Name: "old", By: ByCertificate}, ""},
		{Caller{Role: certs.Node, By: ByNothing, From: "10.0.0.1:9"}, "10.0.0.1"},
		{Caller{Role: certs.Node, By: ByNothing, From: "[::1]:9"}, "::1"},
	} {
		req := &pb.CreateTableRequest{Name: "t", Owner: "somebody else"}
		_, err := guard.Call(t.Context(), test.who, pb.Percolator_CreateTable_FullMethodName, req,
			func() (any, error) { return nil, nil })
		if err != nil || req.Owner != test.want {
			t.Errorf("%+v: %q, want %q; %v", test.who, req.Owner, test.want, err)
		}
	}
}

// cells returns n cells of a table.
func cells(table uint32, n int) (out []*pb.Cell) {
	for i := range n {
		out = append(out, &pb.Cell{Table: table, Row: fmt.Appendf(nil, "a%d", i), Column: []byte("c")})
	}
	return out
}

// get returns a read of n cells of a table.
func get(table uint32, n int) *pb.TabletRequest {
	return &pb.TabletRequest{Op: &pb.TabletRequest_Get{Get: &pb.GetRequest{Cells: cells(table, n)}}}
}

// TestRates: an identity reads and writes at most as many cells per second as the policy allows, in
// total and in each table, independent of others. Operations that end a transaction always pass,
// and the hint says when a refused operation will pass. Catches BROKEN=client_rate_ignored and
// BROKEN=client_rate_bounds_ends.
func TestRates(t *testing.T) {
	rollback := &pb.TabletRequest{Op: &pb.TabletRequest_Rollback{
		Rollback: &pb.RollbackRequest{Cells: cells(16, 50)},
	}}
	second := time.Second
	for name, test := range map[string]struct {
		policy *pb.Policy
		ops    []any // of amy: a request, the wait before it, or nil: the last one was refused
	}{
		"no bound": {&pb.Policy{}, []any{get(16, 1000), get(16, 1000)}},
		"in all": {&pb.Policy{ClientRate: proto.Uint64(10)},
			[]any{get(16, 5), get(17, 5), get(16, 1), nil, second / 10, get(16, 1), get(16, 1), nil}},
		"in a table": {&pb.Policy{ClientTableRate: proto.Uint64(10)},
			[]any{get(16, 10), get(17, 10), get(16, 1), nil, get(18, 10), second / 2, get(16, 5), get(16, 1), nil}},
		"both": {&pb.Policy{ClientRate: proto.Uint64(15), ClientTableRate: proto.Uint64(10)},
			// An operation refused by one bucket takes nothing from the other.
			[]any{get(16, 10), get(16, 5), nil, get(17, 5), get(17, 1), nil}},
		"more than a bucket": {&pb.Policy{ClientRate: proto.Uint64(10)},
			[]any{get(16, 100), get(16, 1), nil, second, get(16, 100), get(16, 1), nil}},
		"an end": {&pb.Policy{ClientRate: proto.Uint64(10)}, []any{get(16, 10), rollback, get(16, 1), nil, rollback}},
	} {
		var r rates
		now := time.Unix(1000, 0)
		var last *pb.Error
		for i, op := range test.ops {
			switch op := op.(type) {
			case time.Duration:
				now = now.Add(op)
			case *pb.TabletRequest:
				last = r.take(test.policy, "amy", op, now)
				refused := i+1 < len(test.ops) && test.ops[i+1] == nil
				if (last != nil) != refused {
					t.Fatalf("RATE: %s: operation %d: %v", name, i, last)
				}
			case nil:
				if last.Code != pb.Error_CODE_OVERLOADED || last.RetryAfterMs == 0 || last.RetryAfterMs > 1001 {
					t.Errorf("%s: operation %d: %v", name, i, last)
				}
				if e := r.take(test.policy, "bob", get(16, 1), now); e != nil {
					t.Errorf("%s: another client: %v", name, e)
				}
				if e := r.take(test.policy, "", get(16, 1), now); e != nil {
					t.Errorf("%s: an operator: %v", name, e)
				}
			}
		}
	}
}

// TestRatesOfAnswers: the cells of a page count when they are known, and delay later operations.
func TestRatesOfAnswers(t *testing.T) {
	var r rates
	now, p := time.Unix(1000, 0), &pb.Policy{ClientRate: proto.Uint64(100)}
	scan := &pb.TabletRequest{Op: &pb.TabletRequest_Scan{Scan: &pb.ScanRequest{Span: &pb.Span{Table: 16}}}}
	for range 2 {
		if e := r.take(p, "amy", scan, now); e != nil {
			t.Fatal(e)
		}
		r.answered(p, "amy", scan, 99, now)
		if e := r.take(p, "amy", scan, now.Add(time.Millisecond)); e == nil {
			t.Error("a page of a hundred cells counts as one")
		}
		now = now.Add(time.Second)
	}
}

// TestBucketsAreBounded: a node drops the buckets of absent clients and keeps those in use.
func TestBucketsAreBounded(t *testing.T) {
	var r rates
	p := &pb.Policy{ClientRate: proto.Uint64(1)}
	now := time.Unix(1000, 0)
	for i := range 3 * maxBuckets {
		if e := r.take(p, fmt.Sprint(i), get(16, 1), now); e != nil {
			t.Fatal(e)
		}
		if i > 0 {
			if e := r.take(p, fmt.Sprint(i-1), get(16, 1), now); e == nil && i != maxBuckets {
				t.Fatalf("the bucket of the one before %d is lost", i)
			}
		}
		now = now.Add(time.Millisecond)
	}
	if n := len(r.buckets); n > maxBuckets {
		t.Errorf("%d buckets", n)
	}
}

// TestMeter: a rate covers the last seconds.
func TestMeter(t *testing.T) {
	var m meter
	now := time.Unix(1000, 0)
	for range 60 {
		m.add(100, now)
		now = now.Add(time.Second)
	}
	if got := m.perSecond(now); got < 80 || got > 120 {
		t.Errorf("%d a second, want 100", got)
	}
	if got := m.perSecond(now.Add(2 * meterPeriod)); got != 0 {
		t.Errorf("%d a second after a rest", got)
	}
}

// TestClientsAreListed: a connection is listed with its identity and its load, and is closed by its
// identity or its id, once.
func TestClientsAreListed(t *testing.T) {
	var clients Clients
	policy := &pb.Policy{ClientRate: proto.Uint64(20)}
	s := serve(t, ServerConfig{
		Clients: &clients, Policy: func() (*pb.Policy, time.Time) { return policy, time.Now() },
	})
	c := s.transport(BatchConfig{})
	read := func() (*pb.TabletResponse, error) {
		d, err := c.Locate(s.ctx, 16, "", 1)
		if err != nil {
			return nil, err
		}
		req := get(16, 15)
		req.TabletId, req.Epoch = d[0].TabletId, d[0].Epoch
		return c.Send(s.ctx, d[0], req)
	}
	if resp, err := read(); err != nil || resp.GetError() != nil {
		t.Fatal(resp, err)
	}
	resp, err := read()
	if err != nil || resp.GetError().GetCode() != pb.Error_CODE_OVERLOADED || resp.Error.RetryAfterMs == 0 {
		t.Errorf("over the rate: %v, %v", resp, err)
	}
	list := clients.List(7)
	if len(list) != 1 {
		t.Fatalf("%v", list)
	}
	one := list[0]
	if one.NodeId != 7 || one.By != ByNothing || one.Operations != 1 || one.Cells != 15 || one.Refused != 1 ||
		one.Rate == 0 || one.From != "bufconn" || one.ConnectedUnixMs == 0 {
		t.Errorf("%v", one)
	}
	if n := clients.Disconnect(s.ctx, "another", 0) + clients.Disconnect(s.ctx, "", one.Id+1); n != 0 {
		t.Errorf("%d connections of nobody", n)
	}
	for i, cut := range []func() uint32{
		func() uint32 { return clients.Disconnect(s.ctx, "bufconn", 0) },
		func() uint32 { return clients.Disconnect(s.ctx, "", clients.List(7)[0].Id) },
	} {
		if n := cut(); n != 1 {
			t.Errorf("%d: %d connections are closed", i, n)
		}
		// The client reconnects automatically.
		for {
			resp, err := read()
			if err == nil && resp.GetError() == nil {
				break
			}
			if errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
			if txn.Sleep(s.ctx, time.Millisecond) != nil {
				t.Fatal(resp, err, clients.List(7))
			}
		}
		if list := clients.List(7); len(list) != 1 || list[0].Id == one.Id {
			t.Errorf("%d: %v", i, list)
		}
	}
}
