// Package upgrade has no code: its tests run a cluster of processes of two builds through
// rolling upgrades and back, under load and kill -9, with the histories of the load checked.
//
// The earlier build is made by the test: of the revision FROM, or of this source, told by the
// linker to know no later version than 2 (internal/version). KNOWS=2-2 tells FROM the same, so
// that it may be a revision that knows as much as this source. The later one is this program.
package upgrade
