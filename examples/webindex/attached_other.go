//go:build !linux

package main

import "syscall"

// attached is for systems that can't tie a child's life to its parent's: if this process
// is killed, its nodes stay.
func attached() *syscall.SysProcAttr { return nil }
