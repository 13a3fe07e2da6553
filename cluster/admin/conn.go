package admin

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// In-process connection of clients to the service: no goroutine, no encoding, and nothing in
// flight when a call has returned.

// Conn returns a connection to the server in the same process. Calls run on their caller's
// goroutine with copies of the messages; errors are returned unchanged.
func Conn(server pb.AdminServer) grpc.ClientConnInterface { return conn{server} }

type conn struct{ server pb.AdminServer }

// Invoke implements grpc.ClientConnInterface.
func (c conn) Invoke(ctx context.Context, method string, req, resp any,
	_ ...grpc.CallOption) error {
	// The generated method table: a new call needs no line here.
	for _, m := range pb.Admin_ServiceDesc.Methods {
		if method != "/"+pb.Admin_ServiceDesc.ServiceName+"/"+m.MethodName {
			continue
		}
		// The generated handler obtains its request through this function. It gets a copy,
		// because caller and server may each change theirs.
		decode := func(into any) error {
			proto.Merge(into.(proto.Message), req.(proto.Message))
			return nil
		}
		out, err := m.Handler(c.server, ctx, decode, nil)
		if err != nil {
			return err
		}
		proto.Merge(resp.(proto.Message), out.(proto.Message))
		return nil
	}
	return status.Errorf(codes.Unimplemented, "percolator: the service Admin has no method %s",
		method)
}

// NewStream implements grpc.ClientConnInterface. It returns an error: the service has no streams.
func (conn) NewStream(context.Context, *grpc.StreamDesc, string,
	...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, status.Error(codes.Unimplemented, "percolator: the service Admin has no streams")
}
