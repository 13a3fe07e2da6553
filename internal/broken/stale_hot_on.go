//go:build broken_stale_hot

package broken

// StaleHotCell: what a reader has found is kept in memory although it has been overwritten meanwhile (section 3).
const StaleHotCell = true
