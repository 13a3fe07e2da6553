package corpus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// ErrNothingToEdit reports that the tree has no pages.
var ErrNothingToEdit = errors.New("corpus: no pages to edit")

// Edits counts the pages that Edit has changed, removed and added.
type Edits struct{ Changed, Added, Removed int }

// Edit copies the tree src to dst with share (0 to 1) of its pages edited, at least one: most are
// changed, some removed, some added. Edit owns dst and a marker next to it, and rewrites dst each
// time. The same tree, share and seed give the same edits.
func Edit(ctx context.Context, src, dst string, share float64, seed uint64) (Edits, error) {
	if share <= 0 || share > 1 {
		return Edits{}, fmt.Errorf("corpus: the share to edit, %v, must be above 0 and at most 1", share)
	}
	if a, b := filepath.Clean(src), filepath.Clean(dst); a == b {
		return Edits{}, fmt.Errorf("corpus: cannot edit %s in place: the edited tree needs another directory", a)
	}
	files, err := read(ctx, src)
	if err != nil {
		return Edits{}, err
	}
	e := newEditor(files, seed)
	if len(e.pages) == 0 {
		return Edits{}, fmt.Errorf("%w: %s", ErrNothingToEdit, src)
	}
	n := max(1, int(share*float64(len(e.pages))))
	for i := range n {
		e.edit(i)
	}
	return e.done, write(ctx, dst, fmt.Sprintf("edit %v %d of %s", share, seed, src), e.files)
}

// editor changes a tree in memory. Its only source of choice is rng, used in a fixed order over
// sorted names: the same tree, share and seed give the same edits on every machine.
type editor struct {
	files map[string][]byte
	pages []string // the pages that the tree has now, edited or not
	seed  uint64   // also in the texts, so that edits of different seeds differ
	rng   *rand.Rand
	done  Edits
}

func newEditor(files map[string][]byte, seed uint64) *editor {
	e := &editor{files: files, seed: seed, rng: rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15))}
	for _, rel := range slices.Sorted(maps.Keys(files)) {
		if isPage(rel) {
			e.pages = append(e.pages, rel)
		}
	}
	return e
}

// pick returns a random page. A page may be picked and edited more than once.
func (e *editor) pick() string { return e.pages[e.rng.IntN(len(e.pages))] }

// pickURL returns the URL of a random page.
func (e *editor) pickURL() string {
	host, path, _ := strings.Cut(e.pick(), "/")
	return (&url.URL{Scheme: "http", Host: host, Path: "/" + path}).String()
}

// edit makes the i-th edit. The mix is meant to touch every part of the index: texts
// alone (a page leaves its cluster), links and anchors (inverted links and elections),
// stubs (redirects), pages that come and go.
func (e *editor) edit(i int) {
	page := e.pick()
	content := e.files[page]
	e.done.Changed++
	switch op := e.rng.IntN(12); op {
	case 0, 1, 2, 3:
		content = insert(content, fmt.Sprintf("<p>Edit %d of seed %d.</p>", i, e.seed))
	case 4, 5:
		content = insert(content, fmt.Sprintf("<p>See %s.</p>",
			anchor(e.pickURL(), fmt.Sprintf("link %d", i))))
	case 6:
		content = e.tag(content, "<a>") // a link less
	case 7:
		content = e.tag(content, fmt.Sprintf("$0renamed %d ", i)) // another anchor text
	case 8:
		content = stub(e.pickURL())
	case 9:
		e.done.Changed--
		e.remove(page)
		return
	default:
		e.done.Changed--
		e.done.Added++
		page = fmt.Sprintf("%s/added/%d-%d.html", strings.SplitN(page, "/", 2)[0], e.seed, i)
		content = e.added(op, i, content)
		e.pages = append(e.pages, page)
	}
	e.files[page] = content
}

// remove deletes the page, unless it is the only one.
func (e *editor) remove(page string) {
	if len(e.pages) == 1 {
		return
	}
	e.done.Removed++
	delete(e.files, page)
	e.pages = slices.DeleteFunc(e.pages, func(p string) bool { return p == page })
}

// added returns a new page: a duplicate of another, a stub, or a page with links.
func (e *editor) added(op, i int, other []byte) []byte {
	switch {
	case op == 10 && i%2 == 0:
		return bytes.Clone(other)
	case op == 10:
		return stub(e.pickURL())
	}
	body := fmt.Sprintf("<h1>Added %d of seed %d</h1>\n", i, e.seed)
	for k := range 1 + e.rng.IntN(5) {
		body += fmt.Sprintf("<p>%s</p>\n",
			anchor(e.pickURL(), fmt.Sprintf("added link %d.%d", i, k)))
	}
	return document(fmt.Sprintf("Added %d", i), body)
}

// insert puts the text before the end of the body.
func insert(content []byte, text string) []byte {
	at := bytes.LastIndex(content, []byte("</body>"))
	if at < 0 {
		at = len(content)
	}
	return slices.Concat(content[:at], []byte(text+"\n"), content[at:])
}

// tag replaces a random anchor tag by the template; a page without any gets a paragraph instead.
func (e *editor) tag(content []byte, template string) []byte {
	tag := regexp.MustCompile(`<a [^>]*>`)
	all := tag.FindAllSubmatchIndex(content, -1)
	if len(all) == 0 {
		return insert(content, "<p>No link here.</p>")
	}
	at := all[e.rng.IntN(len(all))]
	with := tag.Expand(nil, []byte(strings.ReplaceAll(template, "$0", "${0}")), content, at)
	return slices.Concat(content[:at[0]], with, content[at[1]:])
}
