// Package recipes contains no code. Each of its subpackages solves a common problem of
// applications and can be imported as it is, or copied and changed. Its Register, if there is one, adds all
// observers and tables that it needs to a Registry; a table may be registered again, to set its
// split keys. The recipes use only the public API, and are tested under the faults of
// percolatortest and together on three nodes of which one is killed.
package recipes
