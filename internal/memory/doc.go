// Package memory determines the memory limit of a process and limits Go's heap to it.
//
//  1. The bound is the operator's setting, otherwise the limit of the process's cgroup
//     (version 1 or 2), otherwise the machine's memory.
//  2. The runtime's memory limit is three quarters of the bound (Hold), unless GOMEMLIMIT is
//     set. The rest is for memory outside the heap: dirty pages of mapped files, the kernel's
//     buffers, and the growth of the heap during a collection.
//
// Called by: node. What the store makes of the bound is package store's to say; only a
// program that is a node, and nothing else, has its heap held (app.Main). Nothing is
// kept; a crash leaves nothing.
package memory
