// Package broken holds the deliberately broken builds: one constant per safety property, false
// unless the program is built with the tag broken and started with BROKEN=<name>; its children
// inherit that. Each is caught by a named assertion; `make broken` runs them all.
package broken
