// Package config defines the configuration of a node: a plain struct, its defaults, and a
// validation that reports all faults at once. Package node aliases Config; the command line fills
// it from flags, environment and file.
//
// Invariants:
//  1. Validate depends on the values alone: no file, no network, no clock.
//  2. Every fault names its field and the problem, and the fix unless the problem implies it.
//  3. Plain text does not leave the machine by accident: without certificates only loopback
//     addresses are accepted, unless InsecureForce is set (design section 9).
package config
