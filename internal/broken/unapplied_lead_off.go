//go:build !broken_unapplied_lead

package broken

// UnappliedLead: a new leader captures what reads see before the entries that earlier leaders have acknowledged are applied (section 5,
// reads).
const UnappliedLead = false
