//go:build !linux

package demo

import (
	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/app"
)

// Register registers nothing: there is no demo on this system.
var Register func(*percolator.Registry)

// Options returns none: the demo runs on Linux only.
func Options() []app.Option { return nil }
