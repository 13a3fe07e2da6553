//go:build !race || !unix

package node_test

// suppressRaces is for the race detector.
func suppressRaces() {}
