package bad

// TODO: this line is the violation.
var answer = 42

const Number = 1

type Type struct{}

func (Type) Method() {}

func Exported() int { return answer }

func init() {}
