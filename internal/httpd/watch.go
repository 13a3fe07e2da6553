package httpd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/pbjson"
)

// A clusterWatch polls the cluster's status while there are listeners and sends it to all of them:
// one poll and one JSON encoding serve all requests. It owns the last status and the polling
// goroutine, which runs only while there are listeners. Requests call it on their goroutines.

// maxListeners bounds the concurrent listeners. It is far below Options.MaxRequests, so that open
// consoles do not exclude other requests.
const maxListeners = 64

// eventTimeout bounds the write of one event to a listener.
const eventTimeout = 10 * time.Second

var errNoCluster = errors.New("httpd: this node does not serve the cluster's status")

type clusterWatch struct {
	ask    func(context.Context) (*pb.ClusterStatusResponse, []*pb.Table, error)
	encode func(proto.Message) ([]byte, error) // as JSON
	every  time.Duration
	closed chan struct{}
	asking sync.WaitGroup

	mu        sync.Mutex
	ended     bool                      // closed has been closed
	listeners map[chan clusterNews]bool // each has capacity 1 and holds the newest status
	stop      context.CancelFunc        // of the goroutine; nil: there is none
	last      clusterNews
}

// clusterNews is one status of the cluster. It is immutable.
type clusterNews struct {
	at     time.Time
	status *pb.ClusterStatusResponse // nil: see err
	tables []*pb.Table               // none: not known
	err    error
	event  []byte        // for the stream: JSON on one line, without tablets
	whole  func() []byte // the JSON with tablets, encoded at the first call
	views  *views        // filtered copies for users; nil in a filtered copy
}

func newClusterWatch(o Options, every time.Duration) *clusterWatch {
	w := &clusterWatch{
		ask: o.Cluster, encode: pbjson.Marshal, every: every, closed: make(chan struct{}),
		listeners: map[chan clusterNews]bool{},
	}
	if w.ask == nil {
		w.ask = func(context.Context) (*pb.ClusterStatusResponse, []*pb.Table, error) {
			return nil, nil, errNoCluster
		}
	}
	return w
}

// now returns a status that is at most age old, or one of a poll that it waits for.
func (w *clusterWatch) now(ctx context.Context, age time.Duration) (clusterNews, error) {
	w.mu.Lock()
	last := w.last
	w.mu.Unlock()
	if !last.at.IsZero() && time.Since(last.at) <= age {
		return last, last.err
	}
	told, leave, ok := w.listen()
	if !ok {
		return clusterNews{}, errListeners
	}
	defer leave()
	select {
	case news := <-told:
		return news, news.err
	case <-w.closed:
		return clusterNews{}, errListeners
	case <-ctx.Done():
		return clusterNews{}, ctx.Err()
	}
}

// listen returns a channel that receives each new status, until leave is called. If the last status
// is not older than the polling interval, the channel already holds it. ok is false if there are
// maxListeners listeners already or the watch is closed.
func (w *clusterWatch) listen() (news chan clusterNews, leave func(), ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended || len(w.listeners) >= maxListeners {
		return nil, nil, false
	}
	news = make(chan clusterNews, 1)
	w.listeners[news] = true
	if !w.last.at.IsZero() && time.Since(w.last.at) <= w.every {
		news <- w.last
	}
	if w.stop == nil {
		ctx, stop := context.WithCancel(context.Background())
		w.stop = stop
		w.asking.Go(func() { w.run(ctx) })
	}
	return news, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.listeners, news)
		if len(w.listeners) == 0 && w.stop != nil {
			w.stop()
			w.stop = nil
		}
	}, true
}

// run polls until ctx ends, one poll at a time. A poll that takes longer than the interval is
// followed by the next one immediately.
func (w *clusterWatch) run(ctx context.Context) {
	tick := time.NewTicker(w.every)
	defer tick.Stop()
	for {
		news := w.gather(ctx)
		if ctx.Err() != nil {
			return
		}
		w.publish(news)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// publish sends the status to all listeners. It replaces a previous one not yet received.
func (w *clusterWatch) publish(news clusterNews) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = news
	for c := range w.listeners {
		select {
		case <-c:
		default:
		}
		c <- news
	}
}

// gather polls once.
func (w *clusterWatch) gather(ctx context.Context) clusterNews {
	news := clusterNews{}
	news.status, news.tables, news.err = w.ask(ctx)
	news.at, news.views = time.Now(), &views{byKey: map[string]clusterNews{}}
	return w.encoded(news)
}

// encoded returns the status with its JSON.
func (w *clusterWatch) encoded(news clusterNews) clusterNews {
	news.event = w.body(news, withoutTablets(news.status))
	news.whole = sync.OnceValue(func() []byte { return append(w.body(news, news.status), '\n') })
	return news
}

// body returns the answer with this status as one line of JSON.
func (w *clusterWatch) body(n clusterNews, status *pb.ClusterStatusResponse) []byte {
	var answer struct {
		Status json.RawMessage   `json:"status"` // a ClusterStatusResponse, or null
		Tables []json.RawMessage `json:"tables"` // Tables; none: not known
		Totals tabletTotals      `json:"totals"`
		Error  string            `json:"error"` // why status is null
	}
	answer.Status, answer.Tables = json.RawMessage("null"), []json.RawMessage{}
	err := n.err
	if err == nil {
		_, answer.Totals = tabletsOf(n.status)
		answer.Status, err = w.encode(status)
	}
	for _, t := range n.tables {
		if body, failed := w.encode(t); failed == nil {
			answer.Tables = append(answer.Tables, body)
		}
	}
	if err != nil {
		answer.Status, answer.Error = json.RawMessage("null"), err.Error()
	}
	body, failed := json.Marshal(answer)
	if failed != nil { // cannot happen: the parts of answer are JSON already
		body = []byte(`{"status":null,"tables":[],"error":"no JSON"}`)
	}
	return body
}

// close ends all streams and the goroutine.
func (w *clusterWatch) close() {
	w.mu.Lock()
	if !w.ended {
		w.ended = true
		close(w.closed)
	}
	if w.stop != nil {
		w.stop()
		w.stop = nil
	}
	w.mu.Unlock()
	w.asking.Wait()
}

// serve registers the paths. l authorizes listeners and filters their events.
func (w *clusterWatch) serve(mux *http.ServeMux, l *logins) {
	mux.HandleFunc("GET /api/v1/cluster", ownSite(
		func(rw http.ResponseWriter, req *http.Request) { w.once(rw, req, l) }))
	mux.HandleFunc("GET /api/v1/cluster/stream", ownSite(
		func(rw http.ResponseWriter, req *http.Request) { w.stream(rw, req, l) }))
}

// once sends a recent status of the cluster.
func (w *clusterWatch) once(rw http.ResponseWriter, req *http.Request, l *logins) {
	news, err := w.now(req.Context(), w.every)
	if news.at.IsZero() {
		refuseEvents(rw, err)
		return
	}
	rw.Header().Set("Content-Type", "application/json")
	if err != nil {
		rw.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = rw.Write(w.seen(news, l.viewOf(req)).whole())
}

// stream sends each new status of the cluster as a server-sent event, until the client disconnects,
// has lost its permission before an event, or the watch is closed. It skips a status if the client
// is slow. The data of an event is the answer of once without the tablets; their totals are in it.
func (w *clusterWatch) stream(rw http.ResponseWriter, req *http.Request, l *logins) {
	if req.Method != http.MethodGet { // a HEAD would not end
		rw.Header().Set("Allow", http.MethodGet)
		text(rw, http.StatusMethodNotAllowed, "this is an event stream: use GET")
		return
	}
	told, leave, ok := w.listen()
	if !ok {
		refuseEvents(rw, errListeners)
		return
	}
	defer leave()
	// A deadline for each event replaces the server's timeouts, which are for short requests.
	control := http.NewResponseController(rw)
	_ = control.SetReadDeadline(time.Time{})
	rw.Header().Set("Content-Type", "text/event-stream")
	event := "retry: 1000\n\n" // milliseconds until a browser reconnects
	for {
		_ = control.SetWriteDeadline(time.Now().Add(eventTimeout))
		if _, err := fmt.Fprint(rw, event); err != nil || control.Flush() != nil {
			return
		}
		select {
		case news := <-told:
			if l.mayRead(req) != nil {
				return
			}
			event = "data: " + string(w.seen(news, l.viewOf(req)).event) + "\n\n"
		case <-w.closed:
			return
		case <-req.Context().Done():
			return
		}
	}
}

var errListeners = fmt.Errorf(
	"%d requests listen already, or the node is stopping: close some, or ask another node",
	maxListeners)

func refuseEvents(w http.ResponseWriter, err error) {
	w.Header().Set("Retry-After", "5")
	text(w, http.StatusServiceUnavailable, err.Error())
}

// ownSite refuses requests that a browser makes on behalf of another site. That site could not read
// the answer, but each request costs the whole cluster work.
func ownSite(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		switch req.Header.Get("Sec-Fetch-Site") {
		case "cross-site", "same-site":
			text(w, http.StatusForbidden, "only pages of this node may send this request")
		default:
			next(w, req)
		}
	}
}
