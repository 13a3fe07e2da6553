// Package broken holds the deliberately broken builds: one constant per safety property, false unless the program is
// built with the tag broken_<name>. Each is caught by a named assertion; `make broken` runs them all.
package broken
