package placement

import (
	"fmt"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// This file reports what placement does: as errors, log lines and the status that
// operators see. statusBoard is the only part that other goroutines read.

// text describes the step for logs and errors.
func (st Step) text() string {
	if st.Leader != 0 {
		return fmt.Sprintf("tablet %d: node %d is to lead", st.Tablet, st.Leader)
	}
	var what []string
	for _, c := range st.Changes {
		kind := strings.ToLower(strings.TrimPrefix(c.Kind.String(), "KIND_"))
		what = append(what, fmt.Sprintf("%s on node %d", strings.ReplaceAll(kind, "_", " "),
			c.NodeId))
	}
	return fmt.Sprintf("tablet %d: %s", st.Tablet, strings.Join(what, ", "))
}

// statusBoard holds the latest status. The actor writes it; any goroutine may read it.
type statusBoard struct {
	mu     sync.Mutex
	status pb.PlacementStatus
}

func (b *statusBoard) snapshot() *pb.PlacementStatus {
	b.mu.Lock()
	defer b.mu.Unlock()
	return proto.CloneOf(&b.status)
}

func (b *statusBoard) recordPlan(p *Plan, orders int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := &b.status
	s.Target, s.Changing = uint32(p.Target), uint32(p.Changing)
	s.UnderReplicated = uint32(p.UnderReplicated)
	s.Orders, s.Blocked = uint32(orders), p.Blocked
	s.BlockedNodes = p.BlockedNodes
}

func (b *statusBoard) recordStep(st Step) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if st.Leader != 0 {
		b.status.Transfers++
	}
	for _, c := range st.Changes {
		if c.Kind == pb.ReplicaChange_KIND_PROMOTE {
			b.status.Moves++
		}
	}
}

func (b *statusBoard) recordFailure() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.status.Failures++
}
