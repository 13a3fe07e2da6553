//go:build !broken_welcome_forgotten

package broken

// WelcomeForgotten is off; see welcome_forgotten_on.go.
const WelcomeForgotten = false
