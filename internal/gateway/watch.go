package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	percolator "github.com/percolator-go/percolator"
	gw "github.com/percolator-go/percolator/api/gateway/v1"
	"github.com/percolator-go/percolator/internal/httpd"
	"github.com/percolator-go/percolator/internal/txn"
)

// The service Changes, and the same feed as events (text/event-stream) for browsers and curl.

const (
	// watchAhead is the number of changes that are read ahead of a stream, and the maximum of a message.
	watchAhead = 256
	// watchBytes is the size, in bytes of values, from which on a message gets no further changes.
	watchBytes = 256 << 10
	// maxRanges is the maximum number of ranges of one Watch.
	maxRanges = 256
)

// Watch implements the service Changes.
func (s *service) Watch(ctx context.Context, r *connect.Request[gw.WatchRequest],
	stream *connect.ServerStream[gw.WatchResponse]) error {
	return s.watch(ctx, r.Msg, stream.Send)
}

// AdvanceSubscriber implements the service Changes.
func (s *service) AdvanceSubscriber(ctx context.Context,
	r *connect.Request[gw.AdvanceSubscriberRequest]) (*connect.Response[gw.AdvanceSubscriberResponse], error) {
	sub, err := callerIn(ctx).db.Subscribe(ctx, r.Msg.Subscriber)
	if err == nil {
		err = sub.Advance(ctx, percolator.Timestamp(r.Msg.Timestamp))
	}
	return connect.NewResponse(&gw.AdvanceSubscriberResponse{}), err
}

// DropSubscriber implements the service Changes.
func (s *service) DropSubscriber(ctx context.Context,
	r *connect.Request[gw.DropSubscriberRequest]) (*connect.Response[gw.DropSubscriberResponse], error) {
	err := callerIn(ctx).db.DeleteSubscription(ctx, r.Msg.Subscriber)
	return connect.NewResponse(&gw.DropSubscriberResponse{}), err
}

// watch passes the feed of the request to send until ctx ends, or the feed or send fails. What has
// arrived while a message was sent is the next message. The first one says where the feed has begun,
// unless it begins with the initial state: otherwise a caller that began with the present, and
// begins again while a lock holds resolved timestamps back, would miss changes. It is sent once the
// feed has its first element; a caller whose stream ends earlier begins with the present again.
func (s *service) watch(ctx context.Context, req *gw.WatchRequest, send func(*gw.WatchResponse) error) error {
	s.counters.watches.Add(1)
	defer s.counters.watches.Add(-1)
	db := callerIn(ctx).db
	rows, err := rangesOf(req.Ranges)
	if err != nil {
		return err
	}
	from, err := watchFrom(ctx, db, req)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	changes, ended := make(chan percolator.Change, watchAhead), make(chan error, 1)
	go func() { // joined below
		defer close(changes)
		for c, err := range db.Changes(ctx, from, rows...) {
			if err != nil {
				ended <- err
				return
			}
			select {
			case changes <- c:
			case <-ctx.Done():
				ended <- ctx.Err()
				return
			}
		}
	}()
	defer func() {
		cancel()
		for range changes { // until the goroutine of the feed has ended
		}
	}()
	enc := encoder{req.Encoding == gw.Encoding_ENCODING_BYTES}
	for c := range changes {
		if from != 0 {
			if err := send(&gw.WatchResponse{ResolvedTimestamp: uint64(from)}); err != nil {
				return err
			}
			from = 0
		}
		if err := send(gather(enc, c, changes)); err != nil {
			return err
		}
	}
	if err = <-ended; errors.Is(err, percolator.ErrSnapshotTooOld) {
		err = txn.Errorf("%w: %w", errPositionLost, err)
	}
	return err
}

// gather returns a message with the first element and those that have arrived behind it.
func gather(enc encoder, first percolator.Change, arrived <-chan percolator.Change) *gw.WatchResponse {
	m, bytes := &gw.WatchResponse{}, 0
	for c := first; ; {
		if c.Resolved != 0 {
			m.ResolvedTimestamp = uint64(c.Resolved)
		} else {
			m.Changes = append(m.Changes, enc.change(&c))
			bytes += len(c.Value)
		}
		if len(m.Changes) >= watchAhead || bytes >= watchBytes {
			return m
		}
		select {
		case next, ok := <-arrived:
			if !ok {
				return m
			}
			c = next
		default:
			return m
		}
	}
}

// rangesOf returns the ranges, restricted to their columns.
func rangesOf(all []*gw.RowRange) ([]percolator.RowRange, error) {
	if len(all) == 0 || len(all) > maxRanges {
		return nil, txn.Invalid("%d ranges; there must be between 1 and %d", len(all), maxRanges)
	}
	out := make([]percolator.RowRange, len(all))
	for i, r := range all {
		rows, cols, err := rangeOf(r)
		if err != nil {
			return nil, err
		}
		if len(cols) > 0 {
			names := make([]string, len(cols))
			for i, c := range cols {
				names[i] = c.Name
			}
			rows = rows.Columns(names...)
		}
		out[i] = rows
	}
	return out, nil
}

// watchFrom returns the timestamp from which the feed begins; 0 is the initial state. A new
// subscriber gets the present as its position, unless it begins with the initial state or after a
// timestamp.
func watchFrom(ctx context.Context, db *percolator.DB, req *gw.WatchRequest) (percolator.Timestamp, error) {
	var sub *percolator.Subscription
	if req.Subscriber != "" {
		var err error
		if sub, err = db.Subscribe(ctx, req.Subscriber); err != nil {
			return 0, err
		}
	}
	switch {
	case req.After != 0:
		return percolator.Timestamp(req.After), nil
	case sub != nil && sub.Position() != 0:
		return sub.Position(), nil
	case req.Initial:
		return 0, nil
	}
	var now percolator.Timestamp
	err := db.View(ctx, func(_ context.Context, s *percolator.Snapshot) error {
		now = s.StartTS()
		return nil
	})
	if err == nil && sub != nil {
		err = sub.Advance(ctx, now)
	}
	return now, err
}

// change returns a change of the API.
func (e encoder) change(c *percolator.Change) *gw.Change {
	out := &gw.Change{
		Table: c.Column.Table, Deleted: c.Deleted, Initial: c.Initial, CommitTimestamp: uint64(c.CommitTS),
	}
	if e.text(c.Row) {
		out.RowAs = &gw.Change_Row{Row: c.Row}
	} else {
		out.RowAs = &gw.Change_RowBytes{RowBytes: []byte(c.Row)}
	}
	if e.text(c.Column.Name) {
		out.ColumnAs = &gw.Change_Column{Column: c.Column.Name}
	} else {
		out.ColumnAs = &gw.Change_ColumnBytes{ColumnBytes: []byte(c.Column.Name)}
	}
	switch {
	case c.Deleted:
	case e.text(string(c.Value)):
		out.ValueAs = &gw.Change_Value{Value: string(c.Value)}
	default:
		out.ValueAs = &gw.Change_ValueBytes{ValueBytes: c.Value}
	}
	return out
}

// eventsPath is where the feed is served as events:
//
//	GET /events?table=T[&prefix=P | &from=R&before=R][&column=C…][&after=TS | &initial=true][&subscriber=S]
//
// Each event "change" has a Change, each event "resolved" a resolved timestamp, which is also its id: a
// browser that reconnects sends the last one and continues after it. An event "failure" ends the stream. A token is
// in the header Authorization, never in the query (docs/adr/0079).
const eventsPath = "GET /events"

// events implements eventsPath.
func (s *service) events(w http.ResponseWriter, req *http.Request) {
	// Unlike a call, a GET of a page whose own name resolves to this node carries no origin.
	if req.Header.Get("Origin") == "" && !httpd.OwnHost(req.Host, s.cfg.Hosts) {
		http.Error(w, fmt.Sprintf("%.253q is not a name of this node: use its IP address, or start it with --http-host and the name",
			req.Host), http.StatusMisdirectedRequest)
		return
	}
	asked, err := watchOf(req)
	if err != nil {
		_ = connect.NewErrorWriter().Write(w, req, failure(err))
		return
	}
	ctx, cancel := context.WithCancel(req.Context())
	defer cancel()
	defer context.AfterFunc(s.life, cancel)()
	begun := false
	begin := func() {
		if !begun {
			begun = true
			w.Header().Set("Content-Type", "text/event-stream")
			w.WriteHeader(http.StatusOK)
		}
	}
	flush := http.NewResponseController(w).Flush
	err = s.watch(ctx, asked, func(m *gw.WatchResponse) error {
		if err := s.recheck(ctx); err != nil {
			return err
		}
		begin()
		for _, c := range m.Changes {
			if err := event(w, "change", "", c); err != nil {
				return err
			}
		}
		if ts := m.ResolvedTimestamp; ts != 0 {
			id := strconv.FormatUint(ts, 10)
			if err := event(w, "resolved", id, &gw.WatchResponse{ResolvedTimestamp: ts}); err != nil {
				return err
			}
		}
		return flush()
	})
	if s.life.Err() != nil {
		err = txn.Errorf("%w: the node is stopping", percolator.ErrClosed)
	}
	failed := failure(err)
	s.counters.count(failed)
	if !begun {
		_ = connect.NewErrorWriter().Write(w, req, failed)
		return
	}
	_, _ = fmt.Fprintf(w, "event: failure\ndata: {\"code\":%q,\"message\":%q}\n\n", failed.Code().String(), failed.Message())
	_ = flush()
}

// event writes one event; JSON has no line breaks.
func event(w http.ResponseWriter, name, id string, m proto.Message) error {
	data, err := jsonCodec("json").Marshal(m)
	if err != nil {
		return err
	}
	if id != "" {
		id = "id: " + id + "\n"
	}
	_, err = fmt.Fprintf(w, "%sevent: %s\ndata: %s\n\n", id, name, data)
	return err
}

// watchOf returns the request of Watch that the query is for. The id of a reconnecting browser's last
// event takes precedence over after.
func watchOf(req *http.Request) (*gw.WatchRequest, error) {
	q := req.URL.Query()
	for name := range q {
		if !slices.Contains([]string{"table", "prefix", "from", "before", "column", "after", "initial", "subscriber"}, name) {
			return nil, txn.Invalid("there is no parameter %q", name)
		}
	}
	r := &gw.RowRange{Table: q.Get("table"), Columns: q["column"]}
	if p := q.Get("prefix"); p != "" {
		r.PrefixAs = &gw.RowRange_Prefix{Prefix: p}
	}
	if from := q.Get("from"); from != "" {
		r.FromAs = &gw.RowRange_From{From: from}
	}
	if q.Has("before") {
		r.BeforeAs = &gw.RowRange_Before{Before: q.Get("before")}
	}
	out := &gw.WatchRequest{Ranges: []*gw.RowRange{r}, Subscriber: q.Get("subscriber")}
	after := q.Get("after")
	if last := req.Header.Get("Last-Event-ID"); last != "" {
		after = last
	}
	var err error
	if after != "" {
		if out.After, err = strconv.ParseUint(after, 10, 64); err != nil {
			return nil, txn.Invalid("after is no timestamp: %v", err)
		}
	}
	if initial := q.Get("initial"); initial != "" {
		if out.Initial, err = strconv.ParseBool(initial); err != nil {
			return nil, txn.Invalid("initial is neither true nor false: %v", err)
		}
	}
	return out, nil
}
