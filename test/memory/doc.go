// Package memory contains only a test: a node under a memory limit, as in a container, survives
// a load that makes its store compact continuously. See TestLimit; `make memory` runs it.
package memory
