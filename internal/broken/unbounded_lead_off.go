//go:build !broken_unbounded_lead

package broken

// UnboundedLead is off; see unbounded_lead_on.go.
const UnboundedLead = false
