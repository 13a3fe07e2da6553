// Package admin implements the commands that change the cluster: its policy, nodes, tablets, observers,
// notifications, locks, clients, grants and tokens, and the recovery from the loss of a quorum.
//
// Each file implements commands of one noun, access.go those for clients, grants and tokens. Listings
// change nothing: they page through the tablets and are not one snapshot; a concurrent split may
// list an entry twice.
//
// A change is one request, which is applied completely or not at all, with these exceptions: lock
// resolve, notify replay and recover verify send requests per lock or batch of notifications,
// client disconnect leaves out nodes that do not answer, a failed tablet merge may have moved
// replicas, and recover inspect, plan and apply read and write the directories of stopped nodes
// instead (package salvage).
//
// A crash after a request was sent leaves its outcome unknown: list the state, or repeat the command.
// lock resolve, notify replay and recover verify continue when they are run again.
package admin
