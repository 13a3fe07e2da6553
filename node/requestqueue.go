package node

import (
	"context"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster/join"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/node/hosting"
	"github.com/percolator-go/percolator/node/leaderjobs"
	"github.com/percolator-go/percolator/node/telemetry"
)

// requestQueue holds other nodes' requests that wait for meta or tablets, which peerHandler must not
// do. peerHandler adds them on any goroutine; one goroutine (responder) answers them. Requests may
// be added before it runs.
type requestQueue chan peerRequest

// peerRequest is another node's request. reply is called once, or never if the request was added
// after refuse.
type peerRequest struct {
	deadline time.Time
	req      *wire.PeerRequest
	reply    func(*wire.PeerResponse)
}

// maxPeerRequests bounds the requests that wait.
const maxPeerRequests = 256

// add queues a request, or refuses it if maxPeerRequests wait. It never blocks.
func (q requestQueue) add(deadline time.Time, req *wire.PeerRequest,
	reply func(*wire.PeerResponse)) {
	select {
	case q <- peerRequest{deadline, req, reply}:
	default:
		reply(refused(pb.Error_CODE_OVERLOADED, "too many requests are waiting"))
	}
}

// refuse refuses the queued requests after the responder has ended. A later request gets no answer:
// its caller waits until its deadline or until gossip reports this node dead.
func (q requestQueue) refuse() {
	for {
		select {
		case r := <-q:
			r.reply(refused(pb.Error_CODE_UNAVAILABLE, "the node is stopping"))
		default:
			return
		}
	}
}

// responder answers the requests of a queue. It owns nothing.
type responder struct {
	queue     requestQueue
	self      join.Identity
	observers *hosting.Host
	status    *statuses
	jobs      *leaderjobs.Jobs
	window    *telemetry.Window
}

// run answers requests one after another, which bounds what other nodes can have this one
// do at once. It is a goroutine of the node's background.
func (r *responder) run(ctx context.Context) {
	for {
		select {
		case p := <-r.queue:
			p.reply(r.respond(ctx, p))
		case <-ctx.Done():
			return
		}
	}
}

// respond returns the answer to one request. Its context ends at the request's deadline, but even
// then it returns an answer.
func (r *responder) respond(ctx context.Context, p peerRequest) *wire.PeerResponse {
	// A request is answered even after its deadline: the reply frees what the connection holds for
	// the request.
	ctx, cancel := context.WithDeadline(ctx, p.deadline)
	defer cancel()
	switch body := p.req.Body.(type) {
	case *wire.PeerRequest_Status:
		var status *pb.NodeStatusResponse
		if name := body.Status.GetRunObserver(); name != "" {
			status = &pb.NodeStatusResponse{
				NodeId: r.self.NodeID, Incarnation: r.self.Incarnation,
				Run: r.observers.Run(ctx, name, string(body.Status.GetRunRow())),
			}
		} else if body.Status.GetObservers() {
			status = &pb.NodeStatusResponse{
				NodeId: r.self.NodeID, Incarnation: r.self.Incarnation, Observers: r.observers.StatusOfAll(),
			}
		} else {
			// An error means that some parts could not be gathered in time: the status is sent
			// without them.
			status, _ = r.status.get(ctx, body.Status.GetLeading())
		}
		return &wire.PeerResponse{Body: &wire.PeerResponse_Status{Status: status}}
	case *wire.PeerRequest_Recent:
		return &wire.PeerResponse{
			Body: &wire.PeerResponse_Recent{Recent: r.window.Answer(ctx, body.Recent)},
		}
	case *wire.PeerRequest_Honour:
		if err := r.observers.ApplyCatalogue(ctx); err != nil {
			return refused(pb.Error_CODE_UNAVAILABLE, "the catalogue could not be read: %v", err)
		}
		// The same request is the hint to look for back-fills, see
		// hosting.Host.WakeBackfills.
		r.jobs.WakeBackfills()
		return &wire.PeerResponse{
			Body: &wire.PeerResponse_Honour{
				Honour: &wire.Honoured{Version: body.Honour.GetVersion()},
			},
		}
	}
	// peerHandler adds no other kinds.
	return refused(pb.Error_CODE_INVALID, "unknown request")
}
