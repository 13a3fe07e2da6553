package scanner

import (
	"context"
	"fmt"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// Sender carries one operation to a tablet. txn.Transport implements it.
type Sender interface {
	Send(ctx context.Context, tablet *pb.TabletDescriptor,
		req *pb.TabletRequest) (*pb.TabletResponse, error)
}

// NewWalker returns a Walker that sends an operation for each page.
func NewWalker(s Sender) Walker { return walker{s} }

type walker struct{ sender Sender }

// Walk implements Walker.
func (w walker) Walk(ctx context.Context, tablet *pb.TabletDescriptor,
	req *pb.WalkRequest) (*pb.WalkResponse, error) {
	resp, err := w.sender.Send(ctx, tablet, &pb.TabletRequest{
		TabletId: tablet.GetTabletId(), Epoch: tablet.GetEpoch(),
		Op: &pb.TabletRequest_Walk{Walk: req},
	})
	if err != nil {
		return nil, err
	}
	if e := resp.GetError(); e != nil {
		return nil, fmt.Errorf("scanner: walk of tablet %d: %s (%v)", tablet.GetTabletId(),
			e.Message, e.Code)
	}
	if resp.GetWalk() == nil {
		return nil, fmt.Errorf("scanner: walk of tablet %d: response of an unexpected type",
			tablet.GetTabletId())
	}
	return resp.GetWalk(), nil
}
