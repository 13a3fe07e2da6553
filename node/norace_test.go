//go:build !race || !unix

package node_test

// suppressRaces does nothing: the race detector is off.
func suppressRaces() {}
