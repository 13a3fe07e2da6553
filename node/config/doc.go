// Package config is everything that one node can be told: a plain struct, its defaults,
// and a check that reports all faults at once. Package node aliases Config, so that
// programs name both by node; the command line fills it from flags, environment and file.
//
// Invariants:
//  1. Validate looks at the values alone: no file, no network, no clock. What it accepts
//     node.Open can at least try.
//  2. Every fault names its field, says what is wrong with the value and what to do about
//     it.
//  3. Plain text never leaves the machine by accident: without certificates only loopback
//     addresses are accepted, unless InsecureForce says otherwise (design section 9).
package config
