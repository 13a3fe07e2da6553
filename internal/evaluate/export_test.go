package evaluate

// What the test sees of the package, which is outside it: its rig imports it.
var (
	ErrNoRule = errNoRule
	NotRead   = notRead
)
