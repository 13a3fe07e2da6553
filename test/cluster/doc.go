// Package cluster runs a cluster of real processes and does to it what breaks clusters:
// kill -9, SIGSTOP, one-way and two-way partitions, a CPU quota, slow and failing syncs,
// power loss. Commands and tests drive it (test/torture, examples/webindex/webindex).
//
// Each node is a process of the calling program: Main must be called first in its main
// function or TestMain. With root, each has a network namespace of its own on one bridge
// (Hosts), so that packets between any two can be dropped, in one direction too; without,
// all listen on loopback, and faults of the network are refused.
//
// Everything that is made here (processes, namespaces, bridges, cgroups, mounts) is taken
// down by Close, and named after the process that made it, so that what a killed run has
// left can be told apart and removed.
package cluster
