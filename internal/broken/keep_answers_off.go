//go:build !broken_keep_answers

package broken

// KeepAnswers: answers stay in memory beside what they are encoded to, until the client has taken that.
const KeepAnswers = false
