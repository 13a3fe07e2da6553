// Package certs creates and loads the credentials of a cluster (design section 9): its certificate
// authority, a certificate for each node and client, and the keys that encrypt gossip. They are
// stored in one folder per node:
//
//	ca.crt                  the authority's certificate, on every node and client
//	node.crt, node.key      a node's certificate
//	client.crt, client.key  a client's certificate
//	ca.crl                  the revoked certificates, if any; on every node (ADR 0047)
//	gossip.keys             one key per line in base64; the first encrypts, all decrypt
//	ca.key                  the authority's key, to sign more; keep it off the nodes
//
// A certificate's role is a URI in it, percolator://<role>/<name>, covered by the authority's
// signature.
//
// Invariants:
//  1. A listener accepts only holders of a certificate that the authority has signed and not revoked
//     and that has an accepted role; one for browsers also accepts clients without a certificate
//     (Files.Browsers). On the listeners for clients and browsers the server checks revocation, per
//     call, to report it to the client (Files.Clients).
//  2. Keys are readable only by their owner, and are never overwritten without Request.Force,
//     except gossip.keys by RotateGossipKey.
//  3. Certificates that expire within 30 days are logged when they are loaded and then daily
//     (expiry.go).
//  4. Changed files are reloaded without a restart. If they are invalid, the last valid ones stay in
//     use.
//
// Called by: node, cluster/remoting, internal/rpc, internal/cli. A crash while files are written
// leaves each file complete, old or new.
package certs
