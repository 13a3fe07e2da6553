//go:build broken_charge_after

package broken

// ChargeAfter: no attempt is written before a run, so one that ends its process is never counted.
const ChargeAfter = true
