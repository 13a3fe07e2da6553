// Command percolator runs and talks to a Percolator repository. It links no observers but
// those of its command demo; a program that does has a main of its own around node.Main.
package main

import (
	"github.com/percolator-go/percolator/internal/demo"
	"github.com/percolator-go/percolator/node"
)

func main() { node.Main(demo.Register, demo.Options()...) }
