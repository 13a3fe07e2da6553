package hosting

import (
	"cmp"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
)

// An external service that refuses an observer's runs refuses the runs of all nodes. The refused
// node tells the others in one message each, which may be lost: a node that does not receive it is
// refused itself. Nothing is stored, and no answer is needed.

// refusedTimeout bounds the time in which the message about a refusal may be sent.
const refusedTimeout = time.Second

// tellRefused announces to the workers that report to this node and to the other nodes that an
// external service refuses the observer for d. The dispatcher calls it, and it does not block.
func (h *Host) tellRefused(name string, d time.Duration) {
	h.workers.refused(nil, name, d)
	h.tellNodesRefused(name, d)
}

// tellNodesRefused is tellRefused for other nodes alone.
func (h *Host) tellNodesRefused(name string, d time.Duration) {
	req := &wire.PeerRequest{Body: &wire.PeerRequest_Outside{
		Outside: &wire.OutsideRefusal{Observer: name, WaitMs: uint64(d.Milliseconds())},
	}}
	deadline := time.Now().Add(refusedTimeout)
	for _, node := range h.cfg.Peers.Alive() {
		h.cfg.Peers.Tell(node, deadline, proto.CloneOf(req), func(*wire.PeerResponse, error) {})
	}
}

// HearRefused passes another node's announcement by tellRefused, with a wait of at most 1 h, to the
// dispatcher and to the workers that report to this node. It does not block.
func (h *Host) HearRefused(m *wire.OutsideRefusal) {
	if x := h.runs.Load(); x != nil {
		ms := min(m.GetWaitMs(), uint64(time.Hour.Milliseconds()))
		x.dispatcher.Refused(m.GetObserver(), time.Duration(ms)*time.Millisecond)
		h.workers.refused(nil, m.GetObserver(), time.Duration(ms)*time.Millisecond)
	}
}

// mergeOutside combines what two nodes report of one observer's wait for an external service: the
// longer time waited so far and the earlier next attempt. Nil means no wait.
func mergeOutside(a, b *pb.OutsideWait) *pb.OutsideWait {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return &pb.OutsideWait{
		WaitedMs: max(a.WaitedMs, b.WaitedMs), NextMs: min(a.NextMs, b.NextMs),
		Error: cmp.Or(a.Error, b.Error),
	}
}
