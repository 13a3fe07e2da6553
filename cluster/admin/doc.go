// Package admin implements the service Admin: what operators order and ask of a cluster.
//
// Each call is one method of Service, with the messages of admin.proto. The gRPC server
// (internal/rpc) registers the Service as it is; the node's own process reaches it over
// [Conn], and so do the simulations' clients; remote programs over their gRPC connection.
// All of them use the generated pb.AdminClient, so that another call needs no code in
// between: ARCHITECTURE.md says which files it takes.
//
// Any node takes any call. What must be decided once for the cluster is a transaction on
// the meta tablet (package meta); the call returns when that is committed, and what
// follows from it is done by the node that leads meta. Refusals are a *txn.ServerError.
//
// A Service keeps only the node table as it was last read. After a crash it begins
// without.
package admin
