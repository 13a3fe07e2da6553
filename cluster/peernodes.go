package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// PeerLink sends requests to other nodes. *peer.Peers implements it.
type PeerLink interface {
	// Call sends a request and waits for the response.
	Call(ctx context.Context, node uint64, req *wire.PeerRequest) (*wire.PeerResponse, error)
	// Tell sends a request and calls the callback then once, with the response or an error.
	Tell(node uint64, deadline time.Time, req *wire.PeerRequest, then func(*wire.PeerResponse, error))
	// Raft sends a Raft message, or drops it.
	Raft(m *wire.RaftMessage)
	// Down fails the requests to incarnations of the node up to the given one.
	Down(node, incarnation uint64)
}

// PeerNodes are the other nodes of the cluster: which of them are alive, and how to send
// requests to them. Connect sets its members and its link; all other methods may be called
// concurrently after that. The link bounds the requests in flight. On a node without a link
// every request fails.
type PeerNodes struct {
	self    uint64
	members Members
	link    PeerLink // nil: the node runs alone

	lost atomic.Uint64
}

// ErrAlone is the error of Call on a node that runs alone. That of Tell wraps txn.ErrNotSent
// instead.
var ErrAlone = errors.New("cluster: there are no other nodes")

// NewPeerNodes returns the peers of the node self, which runs alone until Connect is called.
func NewPeerNodes(self uint64) *PeerNodes { return &PeerNodes{self: self} }

// Connect sets the members, and the link to them, which is nil for a node that runs alone. It is
// called once, before any request.
func (p *PeerNodes) Connect(members Members, link PeerLink) { p.members, p.link = members, link }

// Self returns the id of this node.
func (p *PeerNodes) Self() uint64 { return p.self }

// Members returns the members that Connect was given; nil before.
func (p *PeerNodes) Members() Members { return p.members }

// Alone reports whether this node has no link to other nodes.
func (p *PeerNodes) Alone() bool { return p.link == nil }

// Alive returns the other nodes that gossip believes alive. The list may be several
// heartbeats old: a request to one of them still needs a deadline.
func (p *PeerNodes) Alive() (ids []uint64) {
	if p.link == nil {
		return nil
	}
	for _, m := range p.members.Alive() {
		if m.NodeID != p.self {
			ids = append(ids, m.NodeID)
		}
	}
	return ids
}

// IsAlive reports whether gossip believes the node alive. It is true of this node.
func (p *PeerNodes) IsAlive(node uint64) bool {
	_, alive := p.members.Member(node)
	return alive
}

// NoteEvent reports to the link which incarnations of the node have ended, and counts lost nodes.
// The event must concern another node, and this node must have a link.
func (p *PeerNodes) NoteEvent(e MemberEvent) {
	if e.Alive {
		p.link.Down(e.Member.NodeID, e.Member.Incarnation-1) // earlier incarnations have ended
		return
	}
	p.lost.Add(1)
	p.link.Down(e.Member.NodeID, e.Member.Incarnation)
}

// Lost returns the number of times that gossip has reported another node dead or gone.
func (p *PeerNodes) Lost() uint64 { return p.lost.Load() }

// Call sends a request to a node and waits for the response. A response that is an error is
// returned as a *txn.ServerError; for other errors see peer.Peers.Call.
func (p *PeerNodes) Call(ctx context.Context, node uint64,
	req *wire.PeerRequest) (*wire.PeerResponse, error) {
	if p.link == nil {
		return nil, ErrAlone
	}
	r, err := p.link.Call(ctx, node, req)
	// The code of a refusal says whether anything was done.
	if err == nil && r.GetError() != nil {
		err = &txn.ServerError{Code: r.Error.Code, Message: r.Error.Message}
	}
	return r, err
}

// Tell sends a request to a node and returns. The callback then is called once, on any goroutine,
// possibly before Tell returns, and must not block. Unlike Call, Tell passes a response that is an
// error on to then.
func (p *PeerNodes) Tell(node uint64, deadline time.Time, req *wire.PeerRequest,
	then func(*wire.PeerResponse, error)) {
	// ErrNotSent lets the coordinator try another node: nothing has left this one.
	if p.link == nil {
		then(nil, fmt.Errorf("%w: node %d is unreachable", txn.ErrNotSent, node))
		return
	}
	p.link.Tell(node, deadline, req, then)
}

// SendRaft sends a Raft message. On a node that runs alone it drops the message.
func (p *PeerNodes) SendRaft(m *wire.RaftMessage) {
	if p.link != nil {
		p.link.Raft(m)
	}
}

// Status requests the status of another node; req selects its parts.
func (p *PeerNodes) Status(ctx context.Context, node uint64,
	req *pb.NodeStatusRequest) (*pb.NodeStatusResponse, error) {
	r, err := p.Call(ctx, node, &wire.PeerRequest{Body: &wire.PeerRequest_Status{Status: req}})
	if err != nil {
		return nil, fmt.Errorf("cluster: get the status of node %d: %w", node, err)
	}
	return r.GetStatus(), nil
}

// Clock requests the time of another node, in Unix milliseconds.
func (p *PeerNodes) Clock(ctx context.Context, node uint64) (unixMs int64, err error) {
	s, err := p.Status(ctx, node, &pb.NodeStatusRequest{Brief: true})
	return s.GetUnixMs(), err
}

// Survey asks another node which of its tablets have no work for observers.
func (p *PeerNodes) Survey(ctx context.Context, node uint64,
	q *wire.SurveyRequest) (*wire.Survey, error) {
	r, err := p.Call(ctx, node, &wire.PeerRequest{Body: &wire.PeerRequest_Survey{Survey: q}})
	return r.GetSurvey(), err
}

// SendChunk sends a piece of a snapshot to another node. It calls the callback then as Tell does,
// but with a *txn.ServerError for a response that is an error.
func (p *PeerNodes) SendChunk(node uint64, deadline time.Time, chunk *wire.SnapshotChunk,
	then func(*wire.SnapshotAnswer, error)) {
	req := &wire.PeerRequest{Body: &wire.PeerRequest_Snapshot{Snapshot: chunk}}
	p.Tell(node, deadline, req, func(r *wire.PeerResponse, err error) {
		switch {
		case err != nil:
			then(nil, err)
		case r.GetError() != nil:
			then(nil, &txn.ServerError{Code: r.Error.Code, Message: r.Error.Message})
		case r.GetSnapshot() == nil:
			then(nil, fmt.Errorf("cluster: node %d answered a piece of a snapshot with another message",
				node))
		default:
			then(r.GetSnapshot(), nil)
		}
	})
}
