package walks

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// A step is one block of a walk, with its documented output.
type step struct{ script, output string }

// join joins the steps into one script. A line between them separates their outputs.
func join(steps []step) string {
	var script strings.Builder
	for i, s := range steps {
		fmt.Fprintf(&script, "echo '%s'\n%s\n", mark(i), s.script)
	}
	return script.String()
}

func mark(step int) string { return fmt.Sprintf("=== step %d ===", step) }

// compare looks for each line of a step's documented output in the step's output, in order. Other
// lines may be in between. "…" stands for any text in a line, and a space for any white space.
func compare(steps []step, printed string) (faults []string) {
	for i, s := range steps {
		_, rest, _ := strings.Cut(printed, "\n"+mark(i)+"\n")
		rest, _, _ = strings.Cut(rest, "\n"+mark(i+1)+"\n")
		lines := strings.Split(rest, "\n")
		for want := range strings.Lines(s.output) {
			like := pattern(want)
			for len(lines) > 0 && (strings.HasPrefix(lines[0], "+") || !like.MatchString(lines[0])) {
				lines = lines[1:]
			}
			if len(lines) == 0 {
				faults = append(faults, fmt.Sprintf("after\n%s\nthere is no line, or not in its order, like %q",
					s.script, want))
				break
			}
			lines = lines[1:]
		}
	}
	return faults
}

func pattern(line string) *regexp.Regexp {
	like := regexp.QuoteMeta(strings.Join(strings.Fields(line), " "))
	return regexp.MustCompile(strings.NewReplacer(" … ", `\s.*`, "…", ".*", " ", `\s+`).Replace(like))
}

func TestCompareFindsWrongOutput(t *testing.T) {
	printed := "x\n" + mark(0) + "\n+ echo a\na   1 b\nc\n" + mark(1) + "\nd\n"
	for _, c := range []struct {
		first, second string
		faults        int
	}{
		{"a … b\nc\n", "d\n", 0},
		{"a 1 b\n", "", 0},
		{"c\na … b\n", "d\n", 1}, // the other order
		{"d\n", "c\n", 2},        // another step's
		{"echo\n", "", 1},        // the command, not its output
	} {
		got := compare([]step{{"one", c.first}, {"two", c.second}}, printed)
		if len(got) != c.faults {
			t.Errorf("%q, %q: %d faults, not %d: %q", c.first, c.second, len(got), c.faults, got)
		}
	}
}
