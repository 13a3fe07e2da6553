//go:build broken_stale_bound

package broken

// StaleBound: a read that has waited for a worker is answered by the bound of when it was taken up, whatever was collected
// since (section 5, reads).
const StaleBound = true
