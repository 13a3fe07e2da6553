//go:build !broken_early_answer

package broken

// EarlyAnswer: answers do not wait until what they were evaluated on is applied (section 5, answers).
const EarlyAnswer = false
