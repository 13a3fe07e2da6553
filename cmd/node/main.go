// Command percolator runs and administers a Percolator repository. It links no observers except
// those of its demo command; a program with observers has its own main around app.Main.
package main

import (
	"github.com/percolator-go/percolator/app"
	_ "github.com/percolator-go/percolator/backup/s3" // backups in s3://
	"github.com/percolator-go/percolator/internal/demo"
)

func main() { app.Main(demo.Register, demo.Options()...) }
