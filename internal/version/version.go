// Package version identifies this build and determines its compatibility with a cluster.
package version

import (
	"path"
	"runtime/debug"
)

// Release is the current or next release of this source.
const Release = "0.1.0"

// stamped is set by the linker (-X); empty in a plain `go build`. It is never written at run time.
var stamped string

// self is this module's path.
const self = "github.com/percolator-go/percolator"

// unversioned is the version of a program without a recorded one.
const unversioned = "unversioned"

// String returns this module's version: the one stamped by the linker, otherwise, in a program of
// another module, the one recorded by the Go tool, otherwise Release, with the commit if known
// ("0.1.0+0123456789ab"), or with "+replaced" if a directory replaces the module.
func String() string {
	if stamped != "" {
		return stamped
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return Release
	}
	return library(info)
}

// Program returns the version of the program that links this module, or "" for this module's
// own programs and those without build information.
func Program() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Path != self {
		return own(info)
	}
	return ""
}

// Application returns the name of the program that links this module, and its version, such as
// "roster v1.2.0" or "roster devel-0123456789ab"; "" for this module's own programs and those
// without build information.
func Application() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Path != self {
		return application(info)
	}
	return ""
}

// application returns the last element of the main package's path, and the version of its module.
func application(info *debug.BuildInfo) string {
	name := info.Path
	if name == "" || name == "command-line-arguments" { // go run with the names of files
		name = info.Main.Path
	}
	if base := path.Base(name); base != "." {
		return base + " " + own(info)
	}
	return own(info)
}

// library returns the version of this module in a build.
func library(info *debug.BuildInfo) string {
	if info.Main.Path == self {
		if commit := commitOf(info); commit != "" {
			return Release + "+" + commit
		}
		return Release
	}
	for _, dep := range info.Deps {
		switch {
		case dep.Path != self:
		case dep.Replace == nil && dep.Version != "":
			return dep.Version
		case dep.Replace != nil && dep.Replace.Version != "":
			return dep.Replace.Version
		case dep.Replace != nil: // a directory, whose version is not recorded
			return Release + "+replaced"
		}
	}
	return Release
}

// own returns the version of the main module: its release, otherwise "devel-" and the commit that
// it was built from, otherwise unversioned.
func own(info *debug.BuildInfo) string {
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	if commit := commitOf(info); commit != "" {
		return "devel-" + commit
	}
	return unversioned
}

// commitOf returns the first 12 digits of the commit that the program was built from, with
// ".dirty" if the tree had changes; empty if none was recorded.
func commitOf(info *debug.BuildInfo) string {
	commit, dirty := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value[:min(len(s.Value), 12)]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = ".dirty"
		}
	}
	if commit == "" {
		return ""
	}
	return commit + dirty
}
