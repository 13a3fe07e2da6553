package rpc

import (
	"log/slog"
	"testing"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/certs"
)

// TestOwnerOfTables: a table counts for the client that asks for it, whatever its request
// says, and for nobody if that is an operator.
func TestOwnerOfTables(t *testing.T) {
	guard := NewGuard(slog.New(slog.DiscardHandler), nil, nil)
	for _, test := range []struct {
		who  Caller
		want string
	}{
		{Caller{Role: certs.Writer, Name: "amy", By: ByCertificate, From: "10.0.0.1:9"}, "amy"},
		{Caller{Role: certs.Writer, Name: "amy", By: ByToken}, "amy"},
		{Caller{Role: certs.Operator, Name: "ann", By: ByCertificate}, ""},
		{Caller{Role: certs.Client, Name: "old", By: ByCertificate}, ""},
		{Caller{Role: certs.Node, By: ByNothing, From: "10.0.0.1:9"}, "10.0.0.1"},
		{Caller{Role: certs.Node, By: ByNothing, From: "[::1]:9"}, "::1"},
	} {
		req := &pb.CreateTableRequest{Name: "t", Owner: "somebody else"}
		_, err := guard.Call(t.Context(), test.who, pb.Percolator_CreateTable_FullMethodName, req,
			func() (any, error) { return nil, nil })
		if err != nil || req.Owner != test.want {
			t.Errorf("%+v: %q, want %q; %v", test.who, req.Owner, test.want, err)
		}
	}
}
