//go:build broken_d_by_key

package broken

// DataByKey: collection deletes a long value by its own start timestamp, not with the record that names it (section 4,
// invariant 11).
const DataByKey = true
