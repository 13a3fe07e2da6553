//go:build broken_unbounded_lead

package broken

// UnboundedLead: the oracle gives out as many timestamps as it is asked for, however far they are ahead of
// physical time (section 6).
const UnboundedLead = true
