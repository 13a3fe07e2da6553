package schema

import (
	"strings"

	"github.com/percolator-go/percolator/examples/webindex/page"
)

// Row joins the parts of a row key with spaces. A part must not contain a space.
func Row(parts ...string) string { return strings.Join(parts, " ") }

// Prefix returns the common prefix of all rows whose first part is part.
func Prefix(part string) string { return part + " " }

// Parts undoes Row.
func Parts(row string) []string { return strings.Split(row, " ") }

// The kinds of pages, as the first word of content, and as the kind of a member.
const (
	KindPage = "page"
	KindStub = "stub"
)

// EncodeLinks encodes one link per line. Anchor texts must not contain tabs or line breaks.
func EncodeLinks(links []page.Link) []byte {
	var b strings.Builder
	for _, l := range links {
		b.WriteString(l.Target)
		for _, a := range l.Anchors {
			b.WriteString("\t" + a)
		}
		b.WriteByte('\n')
	}
	return []byte(b.String())
}

// DecodeLinks undoes EncodeLinks.
func DecodeLinks(value []byte) []page.Link {
	var links []page.Link
	for _, line := range Lines(value) {
		fields := strings.Split(line, "\t")
		links = append(links, page.Link{Target: fields[0], Anchors: fields[1:]})
	}
	return links
}

// EncodeAnchors encodes the value of a row of anchors.
func EncodeAnchors(texts []string) []byte { return []byte(strings.Join(texts, "\n")) }

// EncodeLines encodes one item per line.
func EncodeLines(items []string) []byte {
	if len(items) == 0 {
		return nil
	}
	return []byte(strings.Join(items, "\n") + "\n")
}

// Lines undoes EncodeLines.
func Lines(value []byte) []string {
	if len(value) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(value), "\n"), "\n")
}
