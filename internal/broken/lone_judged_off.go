//go:build !broken_lone_judged

package broken

// LoneJudged is off; see lone_judged_on.go.
const LoneJudged = false
