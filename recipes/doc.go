// Package recipes contains no code. Each of its subpackages solves a common problem of
// applications and can be imported as it is, or copied and changed. They use only the public
// API and are tested under the faults of percolatortest.
package recipes
