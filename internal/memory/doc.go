// Package memory finds out how much memory a process may take and holds Go's heap to it.
//
//  1. The bound is what the operator says, else the limit of the process's cgroup
//     (version 1 or 2), else the machine's memory.
//  2. The garbage collector is told three quarters of the bound (Hold), unless GOMEMLIMIT
//     says otherwise. The rest is for what is not its: the pages of mapped files that are
//     being written, the kernel's buffers, and what the heap grows by while it is being
//     collected.
//
// Called by: node. What the store makes of the bound is package store's to say; only a
// program that is a node, and nothing else, has its heap held (app.Main). Nothing is
// kept; a crash leaves nothing.
package memory
