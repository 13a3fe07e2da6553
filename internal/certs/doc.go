// Package certs makes and loads what protects a cluster (design section 9): an authority
// of its own, a certificate for each node and each client that it signs, and the keys
// that gossip is encrypted with. All of it lies in one folder per node:
//
//	ca.crt                  the authority, on every node and client
//	node.crt, node.key      a node's
//	client.crt, client.key  a client's
//	ca.crl                  what it has revoked, if anything; on every node (ADR 0047)
//	gossip.keys             one key a line in base64; the first encrypts, all decrypt
//	ca.key                  signs more; keep it off the nodes
//
// What a certificate is for, its role, is a URI in it, percolator://<role>/<name>, which
// the authority has signed: its holder cannot change it.
//
// Invariants:
//  1. Nothing is served to, and nothing accepted from, who holds no certificate of the
//     authority with a role that is asked for and that it has not revoked. Where clients connect, the
//     last is told to them by whoever serves (Files.Clients).
//  2. Keys are readable by their owner only, and never overwritten unless asked to.
//  3. What ends is warned of 30 days before, daily and as soon as it is loaded (expiry.go).
//  4. Files that change are picked up without a restart; what is unsound among them is
//     not, and the last sound ones stay.
//
// Called by: node, cluster/remoting, internal/rpc, internal/cli. A crash while files are
// written leaves old or new ones whole.
package certs
