// Package localcluster runs nodes as processes of one machine: it starts, pauses, resumes,
// terminates and kills them, each with a directory and free ports of loopback.
//
// The command demo runs a cluster of it. test/cluster adds faults of disks, networks and
// syncs, quotas and TLS.
//
// Invariants:
//  1. A node ends with the process that started it, also if that is killed.
//  2. Ctrl-C in the terminal does not reach a node.
//
// It runs on Linux only.
package localcluster
