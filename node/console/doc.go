// Package console answers what the console's pages ask of a node over HTTP, and lets people
// who have logged in act (package httpd serves the pages).
//
// Invariants:
//  1. Rows and values are shown to people who have logged in only; by a node without certificates
//     on a loopback address, to everyone. The keys at which tablets begin or end are shown to
//     people who have logged in; by a node without certificates, to everyone.
//  2. A node with certificates does not show rows of a table with grants at all: the answers are
//     the same for everybody.
//  3. A revoked certificate or token is refused within 1 s.
//
// Called by: package httpd on goroutines of requests, from before the node serves. It keeps
// nothing, so that a crash loses nothing.
package console
