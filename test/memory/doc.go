// Package memory holds no code but a test: a node under a limit of memory, as in a container, lives
// through a load that makes its store compact all the time. See TestLimit; `make memory` runs it.
package memory
