//go:build !broken_trust_survey

package broken

// TrustSurvey: scanners never walk a tablet while the survey says that it has nothing for observers.
const TrustSurvey = false
