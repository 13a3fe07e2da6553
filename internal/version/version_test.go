package version

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"testing"
)

// TestAdmit: the builds that can be nodes of a cluster, and the errors for the others.
func TestAdmit(t *testing.T) {
	for _, c := range []struct {
		build   Range
		agreed  Agreed
		refused string // empty: admitted
	}{
		{Range{2, 3}, Agreed{2, 2}, ""}, // upgraded, not finalised
		{Range{2, 3}, Agreed{3, 2}, ""}, // during finalisation
		{Range{2, 3}, Agreed{3, 3}, ""},
		{Range{2, 2}, Agreed{2, 2}, ""}, // rolled back, or not upgraded yet
		{Range{2, 2}, Agreed{3, 2}, "the cluster is at version 3, and the build supports 2: start a build that supports 3"},
		{Range{2, 2}, Agreed{3, 3}, "the cluster is at version 3, and the build supports 2: start a build that supports 3"},
		{RangeOf(0, 0), Agreed{2, 2}, ""}, // from before version numbers
		{RangeOf(0, 0), Agreed{3, 3}, "and the build supports 2"},
		{Range{3, 8}, Agreed{3, 3}, ""},
		{Range{7, 8}, Agreed{3, 3}, "the cluster is at version 3, and the build supports 7 to 8: upgrade all nodes to a " +
			"build that supports 3 and a later version first"},
		{Range{3, 8}, Agreed{3, 2}, "the cluster is at version 2, and the build supports 3 to 8"},
		{Range{7, 8}, Agreed{3, 0}, ""}, // the active version is unknown
		{Range{2, 2}, Agreed{3, 0}, "the cluster is at version 3"},
	} {
		err := c.agreed.Admit(c.build)
		switch {
		case c.refused == "" && err != nil:
			t.Errorf("%+v in %+v: %v", c.build, c.agreed, err)
		case c.refused != "" && (!errors.Is(err, ErrIncompatible) ||
			!strings.Contains(err.Error(), c.refused)):
			t.Errorf("%+v in %+v: %v, want %q", c.build, c.agreed, err, c.refused)
		}
	}
}

// TestFeatures: every feature belongs to a version supported by this build, in the table's order,
// and the newest version has one.
func TestFeatures(t *testing.T) {
	last := Unnumbered
	for _, f := range Features() {
		if f.Since < last || f.Since > newest || f.Name == "" {
			t.Errorf("%+v after version %d, of %d at most", f, last, newest)
		}
		last = f.Since
	}
	if last != newest {
		t.Errorf("no feature is of version %d", newest)
	}
}

// TestStamp: only a valid text set by the linker changes the supported versions.
func TestStamp(t *testing.T) {
	own := Range{oldest, newest}
	for text, want := range map[string]Range{
		"": own, "2-2": {2, 2}, "7-8": {7, 8}, "3": own, "3-2": own, "0-3": own, "a-b": own,
	} {
		if got := parseRange(text); got != want {
			t.Errorf("%q: %+v", text, got)
		}
	}
}

// TestGate: the store records a minimum before any feature of that version is used; versions never
// decrease; a version that the store refuses stays unknown.
func TestGate(t *testing.T) {
	var noted []Number
	var full error
	g := NewGate(Range{2, 3}, 2, func(n Number) error {
		if full == nil {
			noted = append(noted, n)
		}
		return full
	})
	feature := Feature{"something", 3}
	check := func(what string, err, want error, has bool, minimum Number, notes string) {
		t.Helper()
		if !errors.Is(err, want) || g.Has(feature) != has || g.Agreed().Minimum != minimum ||
			fmt.Sprint(noted) != notes {
			t.Errorf("%s: %v, has %v, agreed %+v, noted %v", what, err, g.Has(feature), g.Agreed(), noted)
		}
	}
	check("new", g.Check(Feature{}), nil, false, 2, "[]")
	check("nothing known", g.Check(feature), ErrNotActive, false, 2, "[]")
	check("not finalised", g.Learn(Agreed{2, 2}), nil, false, 2, "[]")
	check("refused", g.Check(feature), ErrNotActive, false, 2, "[]")
	full = errors.New("no space left")
	check("the store refuses", g.Learn(Agreed{3, 3}), full, false, 2, "[]")
	full = nil
	check("prepared", g.Learn(Agreed{3, 2}), nil, false, 3, "[3]")
	check("finalised", g.Learn(Agreed{3, 3}), nil, true, 3, "[3]")
	check("old news", g.Learn(Agreed{2, 2}), nil, true, 3, "[3]")
	check("a later version", g.Learn(Agreed{9, 9}), ErrIncompatible, true, 3, "[3]")
	check("allowed", g.Check(feature), nil, true, 3, "[3]")
}

// TestBuilds: the build information of the Go tool gives the versions of the program and of this
// module.
func TestBuilds(t *testing.T) {
	module := func(version string, replaced *debug.Module) *debug.Module {
		return &debug.Module{Path: self, Version: version, Replace: replaced}
	}
	app := func(version string, dep *debug.Module) *debug.BuildInfo {
		return &debug.BuildInfo{
			Main: debug.Module{Path: "example.org/app", Version: version}, Deps: []*debug.Module{dep},
		}
	}
	commit := []debug.BuildSetting{
		{Key: "vcs.revision", Value: "0123456789abcdef0123"}, {Key: "vcs.modified", Value: "true"},
	}
	for _, c := range []struct {
		name                string
		info                *debug.BuildInfo
		program, percolator string
	}{
		{"a release", app("v1.2.3", module("v0.9.0", nil)), "v1.2.3", "v0.9.0"},
		{"of a folder", app("(devel)", module("v0.0.0", &debug.Module{Path: "../p"})),
			unversioned, Release + "+replaced"},
		{"of a fork", app("", module("v0.9.0", &debug.Module{Path: "f", Version: "v0.9.1"})),
			unversioned, "v0.9.1"},
		{"of a checkout", &debug.BuildInfo{
			Main: debug.Module{Path: self, Version: "(devel)"}, Settings: commit,
		}, "devel-0123456789ab.dirty", Release + "+0123456789ab.dirty"},
	} {
		if p, l := own(c.info), library(c.info); p != c.program || l != c.percolator {
			t.Errorf("%s: %s, %s; want %s, %s", c.name, p, l, c.program, c.percolator)
		}
	}
}
