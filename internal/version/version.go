// Package version says which build this is.
package version

import "runtime/debug"

// stamped is set by the linker (-X); empty in a plain `go build`. It is never written at run time.
var stamped string

// String is the stamped version, else the module's as the Go tool recorded it, else
// "unversioned". Never empty.
func String() string {
	if stamped != "" {
		return stamped
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unversioned"
	}
	const self = "github.com/percolator-go/percolator"
	if info.Main.Path == self && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	for _, dep := range info.Deps {
		if dep.Path == self && dep.Version != "" {
			return dep.Version
		}
	}
	return "unversioned"
}
