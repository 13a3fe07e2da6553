// Package recipes holds no code: each of its folders solves one problem that applications
// on a repository have again and again, in a package that may be imported as it is or
// copied and changed. They use the public API alone, and each is tested under the faults
// of percolatortest.
package recipes
