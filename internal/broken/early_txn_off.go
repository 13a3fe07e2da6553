//go:build !broken_early_txn

package broken

// EarlyTxn: a read opens its Badger Txn before it captures the lock view (section 5, reads).
const EarlyTxn = false
