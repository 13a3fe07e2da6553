//go:build !linux

package bulk

// giveWay does nothing on this platform.
func giveWay() {}
