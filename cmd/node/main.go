// Command percolator runs and talks to a Percolator repository. It links no observers but
// those of its command demo; a program that does has a main of its own around app.Main.
package main

import (
	"github.com/percolator-go/percolator/app"
	_ "github.com/percolator-go/percolator/backup/s3" // backups in s3://
	"github.com/percolator-go/percolator/internal/demo"
)

func main() { app.Main(demo.Register, demo.Options()...) }
