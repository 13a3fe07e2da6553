package mvcc

// What tests see of the package, which are outside it: their rig imports it.

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
