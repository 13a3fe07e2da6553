//go:build !broken_clear_always

package broken

// ClearAlways: notifications are cleared whatever their timestamp (invariant 12).
const ClearAlways = false
