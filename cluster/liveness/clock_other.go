//go:build !linux

package liveness

import "time"

// Boottime returns false: this system's clocks may stop while the machine is suspended.
func Boottime() (now time.Duration, ok bool) { return 0, false }
