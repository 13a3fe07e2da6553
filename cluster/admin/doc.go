// Package admin implements the service Admin: the commands and queries of operators.
//
// Each call is one method of Service, with the messages of admin.proto. The gRPC server
// (internal/rpc) registers the Service directly; the node's own process reaches it over [Conn],
// as do the simulations' clients; remote programs use their gRPC connection. All of them use the
// generated pb.AdminClient, so that a new call needs no code in between: ARCHITECTURE.md lists
// the files to change.
//
// Any node accepts any call. Cluster-wide decisions are transactions on the meta tablet (package
// meta); the call returns when the transaction is committed, and the node that leads meta carries
// out its consequences. Rejections are a *txn.ServerError.
//
// A Service caches only the node table as last read. A crash loses that cache.
package admin
