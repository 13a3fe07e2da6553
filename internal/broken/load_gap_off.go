//go:build !broken_load_gap

package broken

// LoadGap: a load counts lines as committed although lines before them are not.
const LoadGap = false
