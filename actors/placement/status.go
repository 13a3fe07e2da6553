package placement

import (
	"fmt"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// StepError is a step that failed, or whose outcome is unknown. The next turn looks at what is.
type StepError struct {
	Step Step
	Err  error
}

// Error says which step failed, and why.
func (e *StepError) Error() string { return fmt.Sprintf("placement: %s: %v", e.Step.text(), e.Err) }

// Unwrap is the reason.
func (e *StepError) Unwrap() error { return e.Err }

// text is the step in words.
func (st Step) text() string {
	if st.Leader != 0 {
		return fmt.Sprintf("tablet %d: node %d is to lead", st.Tablet, st.Leader)
	}
	var what []string
	for _, c := range st.Changes {
		kind := strings.ToLower(strings.TrimPrefix(c.Kind.String(), "KIND_"))
		what = append(what, fmt.Sprintf("%s on node %d", strings.ReplaceAll(kind, "_", " "), c.NodeId))
	}
	return fmt.Sprintf("tablet %d: %s", st.Tablet, strings.Join(what, ", "))
}

// board is how things stand, for other goroutines.
type board struct {
	mu     sync.Mutex
	status pb.PlacementStatus
}

func (b *board) get() *pb.PlacementStatus {
	b.mu.Lock()
	defer b.mu.Unlock()
	return proto.CloneOf(&b.status)
}

func (b *board) plan(p *Plan, orders int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := &b.status
	s.Target, s.UnderReplicated, s.Changing = uint32(p.Target), uint32(p.UnderReplicated), uint32(p.Changing)
	s.Orders, s.Blocked = uint32(orders), p.Blocked
	s.BlockedNodes = p.BlockedNodes
}

func (b *board) did(st Step) {
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

func (b *board) failed() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.status.Failures++
}
