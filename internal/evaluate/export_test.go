package evaluate

// Exports for the external test, whose rig imports this package.
var (
	ErrNoRule = errNoRule
	NotRead   = notRead
)
