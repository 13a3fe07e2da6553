//go:build !broken_rerun_unknown

package broken

// RerunUnknown is off; see rerun_unknown_on.go.
const RerunUnknown = false
