// Package broken says which safety property a deliberately broken build has lost. Production
// code does not import it: each patch in testdata/broken adds one `if broken.On(…)` or the like
// to it, and all patches together are laid over the tree by `go build -overlay`, so that one
// compilation serves every property. The program in catch builds that, and shows that each
// loss is caught by a named test.
package broken

import "os"

// chosen names the property that this process is to break; empty breaks none. Its children
// inherit it.
var chosen = os.Getenv("BROKEN")

// On reports whether the property of that name, which is its patch's file name without ".patch",
// must be broken.
func On(property string) bool { return chosen == property }
