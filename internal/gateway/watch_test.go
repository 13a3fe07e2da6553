package gateway

import (
	"bufio"
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"

	gw "github.com/percolator-go/percolator/api/gateway/v1"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn/txntest"
)

func rangeT() []*gw.RowRange { return []*gw.RowRange{{Table: "t"}} }

// TestWatch: the stream has the initial state, then changes, deletes among them, and continues after a
// resolved timestamp.
func TestWatch(t *testing.T) {
	s := serve(t, nil)
	s.set("a", "1")
	feed := gw.NewChangesClient(s.http, s.url, connect.WithProtoJSON())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	follow := func(req *gw.WatchRequest, until uint64) (text string, resolved uint64) {
		t.Helper()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stream, err := feed.Watch(ctx, connect.NewRequest(req))
		if err != nil {
			t.Fatal(err)
		}
		for stream.Receive() {
			for _, c := range stream.Msg().Changes {
				text += c.GetRow() + "=" + c.GetValue()
				if c.Initial {
					text += " first"
				}
				if c.Deleted {
					text += "deleted"
				}
				text += ", "
			}
			if resolved = max(resolved, stream.Msg().ResolvedTimestamp); resolved > until {
				return text, resolved
			}
		}
		t.Fatal(stream.Err())
		return "", 0
	}
	text, at := follow(&gw.WatchRequest{Ranges: rangeT(), Initial: true}, 0)
	if text != "a=1 first, " {
		t.Errorf("the initial state is %q", text)
	}
	s.set("a", "2")
	last, err := s.transact(&gw.TransactRequest{Deletes: []*gw.Key{key("a")}})
	if err != nil {
		t.Fatal(err)
	}
	if text, _ := follow(&gw.WatchRequest{Ranges: rangeT(), After: at}, last.CommitTimestamp); text != "a=2, a=deleted, " {
		t.Errorf("after %d: %q", at, text)
	}
	for what, req := range map[string]*gw.WatchRequest{
		"no range": {}, "no table": {Ranges: []*gw.RowRange{{Table: "none"}}},
		"the future": {Ranges: rangeT(), After: 1 << 63},
	} {
		stream, err := feed.Watch(ctx, connect.NewRequest(req))
		if err == nil {
			if stream.Receive() {
				t.Errorf("%s: %v", what, stream.Msg())
			}
			err = stream.Err()
		}
		if got := reason(err); got != gw.Failure_REASON_INVALID && got != gw.Failure_REASON_NO_TABLE {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestWatchBegin: the first message of a stream that begins with the present says where it has begun, also
// while the lock of a transaction holds resolved timestamps back: who begins again there misses nothing.
func TestWatchBegin(t *testing.T) {
	s := serve(t, nil)
	s.set("z", "1")
	tables, err := s.process.Tables(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	start := s.cluster.Timestamps(1)
	cell := &pb.Cell{Table: tables[0].Id, Row: []byte("z"), Column: []byte("c")}
	tablets := s.cluster.Tablets()
	resp, err := s.process.Send(t.Context(), nil, &pb.TabletRequest{
		TabletId: tablets[len(tablets)-1].TabletId, Epoch: tablets[len(tablets)-1].Epoch,
		Op: &pb.TabletRequest_Prewrite{Prewrite: &pb.PrewriteRequest{
			StartTs: uint64(start), Primary: cell, Expiry: uint64(mvcc.TimestampAt(start.Millis() + 60_000)),
			Writes: []*pb.CellWrite{{Kind: pb.Kind_KIND_PUT, Cell: cell}},
		}},
	})
	if err != nil || resp.GetMutation().GetStatus() != pb.Status_STATUS_OK {
		t.Fatal(resp, err)
	}
	begun, once := make(chan struct{}), sync.Once{}
	s.process.Inject(func(req *pb.TabletRequest) txntest.Fault {
		if req.GetChanges() != nil {
			once.Do(func() { close(begun) })
		}
		return txntest.Fault{}
	})
	written := make(chan uint64, 1)
	go func() {
		<-begun
		written <- s.set("a", "1").GetCommitTimestamp()
	}()
	feed := gw.NewChangesClient(s.http, s.url, connect.WithProtoJSON())
	stream, err := feed.Watch(t.Context(), connect.NewRequest(&gw.WatchRequest{Ranges: rangeT()}))
	if err != nil {
		t.Fatal(err)
	}
	if !stream.Receive() {
		t.Fatal(stream.Err())
	}
	m, at := stream.Msg(), <-written
	if len(m.Changes) != 0 || m.ResolvedTimestamp <= uint64(start) || m.ResolvedTimestamp >= at {
		t.Errorf("WATCH-GAP: %v, want a timestamp above %d and below %d", m, start, at)
	}
	_ = stream.Close() // the caller closes it
}

// TestPositionLost: a feed from a timestamp after which changes are no longer kept says how to begin again.
func TestPositionLost(t *testing.T) {
	s := serve(t, nil)
	at := s.set("a", "1").CommitTimestamp
	s.cluster.SetBound(s.cluster.Timestamps(1))
	feed := gw.NewChangesClient(s.http, s.url, connect.WithProtoJSON())
	stream, err := feed.Watch(t.Context(), connect.NewRequest(&gw.WatchRequest{Ranges: rangeT(), After: at}))
	if err != nil {
		t.Fatal(err)
	}
	if stream.Receive() {
		t.Errorf("it goes on: %v", stream.Msg())
	}
	if reason(stream.Err()) != gw.Failure_REASON_POSITION_LOST {
		t.Error(stream.Err())
	}
}

// TestEvents: a browser gets the feed as events, and continues after the id of the last one.
func TestEvents(t *testing.T) {
	s := serve(t, nil)
	s.set("a", "1")
	events := func(query, last, until string) (lines []string) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/events?"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Last-Event-ID", last)
		resp, err := s.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		if kind := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusOK || kind != "text/event-stream" {
			return []string{resp.Status}
		}
		for text := bufio.NewScanner(resp.Body); text.Scan(); {
			if lines = append(lines, text.Text()); strings.HasPrefix(text.Text(), until) {
				return lines
			}
		}
		t.Fatal("the events end with ", lines)
		return nil
	}
	first := events("table=t&initial=true", "", "id: ")
	if len(first) < 3 || first[0] != "event: change" || !strings.Contains(first[1], `"value":"1","initial":true`) {
		t.Fatalf("the first events are %q", first)
	}
	id := strings.TrimPrefix(first[len(first)-1], "id: ")
	if _, err := strconv.ParseUint(id, 10, 64); err != nil {
		t.Fatal(err)
	}
	s.set("b", "2")
	if got := events("table=t&initial=true", id, "data: {\"table\""); !strings.Contains(got[len(got)-1], `"value":"2"`) {
		t.Errorf("after %s: %q", id, got)
	}
	for _, query := range []string{"", "table=none", "table=t&after=x", "table=t&initial=x", "table=t&colum=c"} {
		if got := events(query, "", "never"); len(got) != 1 || !strings.HasPrefix(got[0], "4") {
			t.Errorf("%q: %q", query, got)
		}
	}
}
