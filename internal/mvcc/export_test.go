package mvcc

// Exports for the external tests, whose rig imports this package.

const (
	FewWrites      = fewWrites
	MaxNotifyError = maxNotifyError
	MaxUnshown     = maxUnshown
)

var (
	LastWrites = lastWrites
	ValueOf    = valueOf
	SurveyEnd  = SurveyPlace{stage: stageEnd}
)
