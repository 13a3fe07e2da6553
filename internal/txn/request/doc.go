// Package request sends a client's requests to the cluster through a Transport, in a node's process
// and over the network alike, and repeats those that were not applied or are idempotent.
//
// Oracle requests timestamps, Meta sends requests to the meta tablet and caches the tables' ids, and
// Router caches the tablet map (package tabletmap) and sends operations to tablets. Router.Try
// classifies every answer and error as a Verdict, and Retry paces the attempts. All three are safe
// for concurrent use. The errors are those that users see.
//
// Only Oracle has a goroutine, Run, which its owner starts and joins. Nothing here survives a crash.
package request
