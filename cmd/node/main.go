// Command percolator runs and talks to a Percolator repository. It links no observers; a
// program that does has a main of its own around node.Main.
package main

import "github.com/percolator-go/percolator/node"

func main() { node.Main(nil) }
