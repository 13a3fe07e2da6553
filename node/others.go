package node

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/cluster/peer"
	"github.com/percolator-go/percolator/cluster/remoting"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// others are the other nodes of the cluster: which of them are alive, and how they are
// asked. It owns nothing that changes beside what members and peers keep themselves.
// openPeers sets the fields; after that any goroutine may call it. The number of requests
// in flight is bounded by peers. On a node that is alone every request fails.
type others struct {
	self    uint64
	members cluster.Members
	unwatch func()         // ends the watch of members; nil: there is none
	peers   *peer.Peers    // nil: the node is alone
	remote  *remoting.Link // what peers use; nil: a part's

	lost atomic.Uint64 // how often gossip has said of another node that it died, or left
}

// errSingleNode is the error of requests on a node without others.
var errSingleNode = errors.New("node: there are no other nodes")

// alive returns the other nodes that gossip believes alive. It may be some heartbeats old:
// whoever asks a node of the list still bounds the wait for it.
func (o *others) alive() (ids []uint64) {
	if o.peers == nil {
		return nil
	}
	// Alive includes this node, which is not to be asked by a message.
	for _, m := range o.members.Alive() {
		if m.NodeID != o.self {
			ids = append(ids, m.NodeID)
		}
	}
	return ids
}

// isAlive reports whether gossip believes the node alive. It is true of this node.
func (o *others) isAlive(node uint64) bool {
	_, alive := o.members.Member(node)
	return alive
}

// call asks a node and waits for the answer. An answer that is an error is returned as a
// *txn.ServerError; for other errors see peer.Peers.Call.
func (o *others) call(ctx context.Context, node uint64,
	req *wire.PeerRequest) (*wire.PeerResponse, error) {
	if o.peers == nil {
		return nil, errSingleNode
	}
	// ctx's deadline goes along, so that the other node drops what nobody waits for any more.
	r, err := o.peers.Call(ctx, node, req)
	// The other node has answered, with a refusal: the code says whether anything was
	// done.
	if err == nil && r.GetError() != nil {
		err = &txn.ServerError{Code: r.Error.Code, Message: r.Error.Message}
	}
	return r, err
}

// tell asks a node and does not wait. then is called once, on any goroutine, perhaps
// before tell returns, and must not block. Unlike call, it leaves an answer that is an
// error to then.
func (o *others) tell(node uint64, deadline time.Time, req *wire.PeerRequest,
	then func(*wire.PeerResponse, error)) {
	// ErrNotSent lets the coordinator try elsewhere: nothing has left this node.
	if o.peers == nil {
		then(nil, fmt.Errorf("%w: no way to node %d", txn.ErrNotSent, node))
		return
	}
	o.peers.Tell(node, deadline, req, then)
}

// status asks another node for its status. How much is in it depends on req.
func (o *others) status(ctx context.Context, node uint64,
	req *pb.NodeStatusRequest) (*pb.NodeStatusResponse, error) {
	r, err := o.call(ctx, node, &wire.PeerRequest{Body: &wire.PeerRequest_Status{Status: req}})
	if err != nil {
		return nil, fmt.Errorf("node: status of node %d: %w", node, err)
	}
	return r.GetStatus(), nil
}

// clock asks another node for its time, in Unix milliseconds.
func (o *others) clock(ctx context.Context, node uint64) (unixMs int64, err error) {
	s, err := o.status(ctx, node, &pb.NodeStatusRequest{Brief: true})
	return s.GetUnixMs(), err
}

// survey asks another node which of its tablets have nothing for observers.
func (o *others) survey(ctx context.Context, node uint64,
	q *wire.SurveyRequest) (*wire.Survey, error) {
	r, err := o.call(ctx, node, &wire.PeerRequest{Body: &wire.PeerRequest_Survey{Survey: q}})
	return r.GetSurvey(), err
}

// sendChunk sends a piece of a snapshot to another node. then is called as tell calls it.
func (o *others) sendChunk(node uint64, deadline time.Time, chunk *wire.SnapshotChunk,
	then func(*wire.SnapshotAnswer, error)) {
	req := &wire.PeerRequest{Body: &wire.PeerRequest_Snapshot{Snapshot: chunk}}
	o.tell(node, deadline, req, func(r *wire.PeerResponse, err error) {
		switch {
		case err != nil:
			then(nil, err)
		case r.GetError() != nil:
			then(nil, &txn.ServerError{Code: r.Error.Code, Message: r.Error.Message})
		case r.GetSnapshot() == nil:
			then(nil, fmt.Errorf("node: node %d answered a piece of a snapshot with another message",
				node))
		default:
			then(r.GetSnapshot(), nil)
		}
	})
}
