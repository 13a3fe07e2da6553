//go:build broken_early_told

package broken

// EarlyTold: a version of the catalogue is noted as known to every tablet before it is (section 7).
const EarlyTold = true
