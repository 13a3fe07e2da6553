//go:build broken_drop_by_name

package broken

// DropByName: meta drops the table that has the name when the order arrives, whichever its sender saw (section 2: ids are
// never reused, names are).
const DropByName = true
