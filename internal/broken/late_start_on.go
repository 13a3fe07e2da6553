//go:build broken_late_start

package broken

// LateStart: the tablet takes the timestamp of a first read after it has captured what the read is answered from
// (invariant 10 of section 4).
const LateStart = true
