package liveness

import (
	"time"

	"golang.org/x/sys/unix"
)

// Boottime returns the time since the machine was booted, with the time in which it was suspended
// (CLOCK_BOOTTIME). ok is false if the system has no such clock.
func Boottime() (now time.Duration, ok bool) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0, false
	}
	return time.Duration(t.Nano()), true
}
