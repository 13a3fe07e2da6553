//go:build !linux

package demo

import (
	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/app"
)

// Register is nil: the demo runs on Linux only.
var Register func(*percolator.Registry)

// Options returns nil: the demo runs on Linux only.
func Options() []app.Option { return nil }
