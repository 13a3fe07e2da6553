// Package memory determines the memory limit of a process and limits Go's heap to it.
//
//  1. The bound is the operator's setting, otherwise the limit of the process's cgroup
//     (version 1 or 2), otherwise the machine's memory.
//  2. The runtime's memory limit is three quarters of the bound (Hold), unless GOMEMLIMIT is
//     set. The rest is for memory outside the heap: dirty pages of mapped files, the kernel's
//     buffers, and the growth of the heap during a collection.
//
// Called by: package node, which also passes the bound to package store, and package app, which
// limits the heap before it opens a node.
package memory
