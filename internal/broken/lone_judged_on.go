//go:build broken_lone_judged

package broken

// LoneJudged: a term in which the oracle was beside the only voter counts as judged, whoever votes later (section 6).
const LoneJudged = true
