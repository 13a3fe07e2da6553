package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

const (
	// verifyPatience is how long replicas may take to come to the entry and to read what they hold.
	verifyPatience = time.Minute
	verifyAgain    = 100 * time.Millisecond // between two questions to one replica
	verifyProposes = 3                      // times, while the tablet changes or moves
)

var errNoChecksum = errors.New("node: the replica has not computed the checksum in time")

// VerifyTablet implements txn.Admin: the leader has every replica compute the checksum of what it holds as of one entry of the
// log, then each is asked for its result.
func (a *admin) VerifyTablet(ctx context.Context, req *pb.VerifyTabletRequest) (*pb.VerifyTabletResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, verifyPatience)
	defer cancel()
	d, id, err := a.n.beginVerify(ctx, req.TabletId)
	if err != nil {
		return nil, err
	}
	out := &pb.VerifyTabletResponse{Replicas: make([]*pb.ReplicaChecksum, len(d.Replicas))}
	var asking sync.WaitGroup
	for i, replica := range d.Replicas {
		asking.Go(func() {
			sum, err := a.n.checksumOf(ctx, replica.NodeId, req.TabletId, id)
			out.Replicas[i] = &pb.ReplicaChecksum{NodeId: replica.NodeId, Result: sum}
			if err != nil {
				out.Replicas[i].Error = err.Error()
			}
		})
	}
	asking.Wait()
	out.Equal = sameChecksums(out.Replicas)
	return out, nil
}

// sameChecksums reports whether every replica has a result, and all the same.
func sameChecksums(replicas []*pb.ReplicaChecksum) bool {
	for _, r := range replicas {
		first := replicas[0].Result
		if r.Result == nil || first == nil || r.Result.Checksum != first.Checksum || r.Result.Entries != first.Entries ||
			r.Result.Index != first.Index {
			return false
		}
	}
	return len(replicas) > 0
}

// beginVerify asks the leader for a checksum. It returns its id, and the tablet with the replicas that compute it.
func (n *Node) beginVerify(ctx context.Context, tablet uint64) (*pb.TabletDescriptor, uint64, error) {
	for try := range verifyProposes {
		d := n.router.Descriptor(tablet)
		if d == nil || try > 0 {
			if err := n.router.Refresh(ctx); err != nil {
				return nil, 0, fmt.Errorf("node: read the tablet map: %w", err)
			}
			if d = n.router.Descriptor(tablet); d == nil {
				return nil, 0, &txn.ServerError{Code: pb.Error_CODE_INVALID, Message: fmt.Sprintf("there is no tablet %d", tablet)}
			}
		}
		req := &pb.TabletRequest{TabletId: tablet, Epoch: d.Epoch, Op: &pb.TabletRequest_Checksum{Checksum: &pb.ChecksumRequest{}}}
		r, err := n.carrier.Send(ctx, d, req)
		if err == nil && r.GetError() == nil {
			return d, r.GetChecksum().GetId(), nil
		}
		if try == verifyProposes-1 || ctx.Err() != nil {
			if err == nil {
				err = &txn.ServerError{Code: r.Error.Code, Message: r.Error.Message}
			}
			return nil, 0, err
		}
	}
	return nil, 0, ctx.Err()
}

// checksumOf asks the node's replica until it has the result.
func (n *Node) checksumOf(ctx context.Context, node, tablet, id uint64) (*pb.ChecksumResponse, error) {
	req := &pb.TabletRequest{TabletId: tablet, Op: &pb.TabletRequest_Checksum{Checksum: &pb.ChecksumRequest{Id: id}}}
	again := time.NewTicker(verifyAgain)
	defer again.Stop()
	var last error
	for {
		r, err := n.askReplica(ctx, node, req)
		switch {
		case err != nil:
			last = err
		case r.GetError() != nil:
			last = errors.New(r.Error.Message)
		case r.GetChecksum().GetDone():
			return r.GetChecksum(), nil
		default:
			last = errNoChecksum
		}
		select {
		case <-ctx.Done():
			return nil, last
		case <-again.C:
		}
	}
}

// askReplica asks one node's replica of a tablet, whether or not it leads.
func (n *Node) askReplica(ctx context.Context, node uint64, req *pb.TabletRequest) (*pb.TabletResponse, error) {
	if node == n.identity.NodeID {
		port := n.router.Port(req.TabletId)
		if port == nil {
			return nil, errElsewhere
		}
		return cluster.AskPort(ctx, port, req.TabletId, req)
	}
	if n.peers == nil {
		return nil, fmt.Errorf("%w: no way to node %d", txn.ErrNotSent, node)
	}
	r, err := n.peers.Call(ctx, node, &wire.PeerRequest{Body: &wire.PeerRequest_Tablet{Tablet: req}})
	switch {
	case err != nil:
		return nil, err
	case r.GetError() != nil:
		return &pb.TabletResponse{Error: r.Error}, nil
	case r.GetTablet() == nil:
		return nil, fmt.Errorf("node: node %d answered tablet %d with something else", node, req.TabletId)
	}
	return r.GetTablet(), nil
}
