//go:build broken_rerun_unknown

package broken

// RerunUnknown: a commit whose outcome is unknown is run again (invariant 8 of section 4).
const RerunUnknown = true
