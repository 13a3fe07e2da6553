//go:build broken_welcome_forgotten

package broken

// WelcomeForgotten: the directory of a node that was forgotten is let in again, with its old promises.
const WelcomeForgotten = true
