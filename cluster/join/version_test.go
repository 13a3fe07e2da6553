package join

import (
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/version"
	"github.com/percolator-go/percolator/internal/wire"
)

// TestVersionsWhenJoining: a new node checks the others' versions before it asks to join, and stays
// unchanged if it cannot; a member that returns while meta is away does not start either if its
// build does not support the version.
func TestVersionsWhenJoining(t *testing.T) {
	onTestNetwork(t, 1, func(s *testNetwork) {
		build := func(h *testNode, oldest, newest version.Number) {
			h.versions = version.Range{Oldest: oldest, Newest: newest}
		}
		a, b := s.build("a", 1), s.build("b", 1, "a")
		a.start()
		build(b, 2, 2)
		b.start()
		if err := s.settle(time.Minute); err != nil {
			t.Fatal(err)
		}
		b.crash()
		if err := a.gate.Learn(version.Agreed{Minimum: 3, Active: 3}); err != nil {
			t.Fatal(err)
		}
		refused := func(h *testNode, text string) {
			t.Helper()
			h.start()
			if err := <-h.entered; !errors.Is(err, version.ErrIncompatible) ||
				!strings.Contains(err.Error(), text) {
				t.Errorf("%s: %v, want %q", h.addr, err, text)
			}
			h.crash()
		}
		early, late := s.build("early", 1, "a"), s.build("late", 1, "a")
		build(early, 2, 2)
		build(late, 7, 8)
		refused(early, "according to a (build 1.2): version: this build does not support the cluster's version: "+
			"the cluster is at version 3, and the build supports 2")
		refused(late, "the build supports 7 to 8")
		for _, h := range []*testNode{early, late} {
			if !h.self.Identity().Fresh() || h.st.Version() != 2 {
				t.Errorf("%s: %+v, its store is of version %d", h.addr, h.self.Identity(), h.st.Version())
			}
		}
		s.say(errors.New("meta has no leader"))
		refused(b, "the cluster is at version 3, and the build supports 2")
		build(b, 2, 3)
		b.start()
		b.enters("the right build")
		if b.st.Version() != 3 {
			t.Errorf("b starts with a store of version %d", b.st.Version())
		}
		// A build without version numbers would start with any answer, so its Hello gets an error instead.
		id := b.self.Identity()
		req := &pb.HelloRequest{
			ClusterId: id.ClusterID, NodeId: id.NodeID, Incarnation: id.Incarnation, Starts: b.self.History(),
		}
		if r, err := a.membership.Hello(t.Context(), req); status.Code(err) != codes.Aborted {
			t.Errorf("UNNUMBERED-CONFIRMED: %v, %v", r, err)
		}
		req.Versions = wire.VersionsPB(version.Known())
		if r, err := a.membership.Hello(t.Context(), req); err != nil ||
			r.Start != pb.HelloResponse_START_CONFIRMED {
			t.Errorf("a build with numbers: %v, %v", r, err)
		}
	})
}
