// Package upgrade contains only tests: they run a cluster of processes of two builds through
// rolling upgrades and back, under load and kill -9, and check the histories of the load.
//
// The test builds the earlier build: from the revision FROM, or by default from this source,
// restricted by a linker flag to version 2 (internal/version). KNOWS=2-2 restricts
// FROM in the same way, for a revision that has the same versions as this source. The later
// build is this program.
package upgrade
