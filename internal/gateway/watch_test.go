package gateway

import (
	"bufio"
	"context"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"connectrpc.com/connect"

	gw "github.com/percolator-go/percolator/api/gateway/v1"
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
