package main

import "syscall"

// attached lets a child end with this process, even if that is killed, and keeps a
// terminal's interrupts from it: its parent tells it when to end.
func attached() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
