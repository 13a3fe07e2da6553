// Package cluster runs a cluster of real processes and injects faults: kill -9, SIGSTOP, one-way
// and two-way partitions, a CPU quota, slow and failing syncs, power loss. Commands and tests
// drive it (test/torture, examples/webindex/webindex). internal/localcluster runs the processes.
//
// Each node is a process of the calling program: Main must be called first in its main
// function or TestMain. With root, each has a network namespace of its own on one bridge
// (Hosts), so that packets between any two can be dropped, also in one direction only; without
// root, all listen on loopback, and network faults are refused.
//
// Close removes everything that the package creates (processes, namespaces, bridges, cgroups,
// mounts). Names contain the id of the creating process, so that a later run can identify and
// remove the leftovers of a killed one.
package cluster
