//go:build broken_stale_leader

package broken

// StaleLeader: a tablet that does not lead any more does not take back what it has told the oracle (section 6: leadership is
// confirmed for each batch).
const StaleLeader = true
