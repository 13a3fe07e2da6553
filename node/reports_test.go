package node

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster/join"
	"github.com/percolator-go/percolator/internal/actorkit"
)

// TestReportsAreBounded: while meta is away one report waits per tablet, however often the tablets
// change, and the latest is written.
func TestReportsAreBounded(t *testing.T) {
	system := actorkit.NewSystem(slog.New(slog.DiscardHandler))
	defer system.Shutdown()
	var written []*pb.TabletDescriptor
	begun, away, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	r := newReports(system.Root, func(d *pb.TabletDescriptor) {
		if written = append(written, d); len(written) == 1 {
			close(begun)
			<-away
		}
		if len(written) == 1+3 {
			close(done)
		}
	})
	r.add(&pb.TabletDescriptor{TabletId: 9, Epoch: 1})
	<-begun
	for epoch := range uint64(1000) {
		for tablet := range uint64(3) {
			r.add(&pb.TabletDescriptor{TabletId: tablet, Epoch: epoch})
		}
	}
	r.add(&pb.TabletDescriptor{TabletId: 1, Epoch: 5}) // late
	close(away)
	<-done
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if len(written) != 4 || slices.ContainsFunc(written[1:], func(d *pb.TabletDescriptor) bool {
		return d.Epoch != 999
	}) {
		t.Errorf("written: %v", written)
	}
}

// TestEarlyServerRecovers: a handler that panics while the node waits to join does not
// end the process.
func TestEarlyServerRecovers(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	// a joining node without a membership
	e := &joining{listen: l, membership: &join.Membership{}, end: func() {}}
	if err := e.serveEarly(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := e.close(); err != nil {
			t.Error(err)
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	conn, err := grpc.NewClient(l.Addr().String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	for range 2 {
		if _, err := pb.NewMembershipClient(conn).Hello(ctx, &pb.HelloRequest{},
			grpc.WaitForReady(true)); status.Code(err) != codes.Internal {
			t.Errorf("a panic: %v", err)
		}
	}
}
