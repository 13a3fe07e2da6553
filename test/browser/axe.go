package browser

import (
	"os"
	"path/filepath"
)

// axeFile is the checker of accessibility rules that `make bin/axe.min.js` fetches, from the root
// of the module.
const axeFile = "bin/axe.min.js"

// Violations returns the violations of axe-core's rules on the page; nil without axe-core.
func (b *Browser) Violations() []string {
	b.t.Helper()
	script, ok := axe()
	if !ok {
		return nil
	}
	if !Eval[bool](b, "window.axe !== undefined") {
		Eval[bool](b, string(script)+"; true")
	}
	Eval[bool](b, `(window.violations = null,
		axe.run({resultTypes: ["violations"]}).then((found) => {
			window.violations = found.violations.map((v) => v.id + ": " + v.nodes.slice(0, 3)
				.map((n) => n.target.join(" ")).join(", "))
		}, (failure) => { window.violations = ["axe failed: " + failure] }), true)`)
	b.Await("axe", "window.violations !== null")
	return Eval[[]string](b, "window.violations")
}

// axe returns the script, if it has been fetched.
func axe() (script []byte, ok bool) {
	folder, err := os.Getwd()
	for ; err == nil; folder = filepath.Dir(folder) {
		if script, err := os.ReadFile(filepath.Join(folder, axeFile)); err == nil {
			return script, true
		}
		if folder == filepath.Dir(folder) {
			return nil, false
		}
	}
	return nil, false
}
