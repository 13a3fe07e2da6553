//go:build !broken_any_role

package broken

// AnyRole: a certificate of the authority is enough, whatever it is for (section 9).
const AnyRole = false
