package backup

// WithMaxWeak returns o with a limit on the first list of weak notifications.
func WithMaxWeak(o CreateOptions, n int) CreateOptions {
	o.maxWeak = n
	return o
}
