//go:build !broken_drop_by_name

package broken

// DropByName is off; see drop_by_name_on.go.
const DropByName = false
