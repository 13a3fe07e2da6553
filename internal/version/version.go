// Package version says which build this is.
package version

import "runtime/debug"

// stamped is set by the linker (-X); empty in a plain `go build`. It is never written at run time.
var stamped string

// self is this module's path.
const self = "github.com/percolator-go/percolator"

// unknown is the version of a build that does not say what it is made of.
const unknown = "unversioned"

// String is the stamped version, else this module's as the Go tool recorded it, with the
// commit where there is no release; else "unversioned". Never empty.
func String() string {
	if stamped != "" {
		return stamped
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return unknown
	}
	return library(info)
}

// Program is the version of the program that links this module; empty if it is this
// module's own.
func Program() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Path != self {
		return own(info)
	}
	return ""
}

// library is the version of this module in a build.
func library(info *debug.BuildInfo) string {
	if info.Main.Path == self {
		return own(info)
	}
	for _, dep := range info.Deps {
		switch {
		case dep.Path != self:
		case dep.Replace == nil && dep.Version != "":
			return dep.Version
		case dep.Replace != nil && dep.Replace.Version != "":
			return dep.Replace.Version
		case dep.Replace != nil: // a folder, of which nothing is recorded
			return "replaced"
		}
	}
	return unknown
}

// own is the version of the main module: its release, or the commit that it was built
// from.
func own(info *debug.BuildInfo) string {
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	commit, dirty := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value[:min(len(s.Value), 12)]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "+dirty"
		}
	}
	if commit == "" {
		return unknown
	}
	return "devel-" + commit + dirty
}
