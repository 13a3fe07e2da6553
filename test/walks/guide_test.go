package walks

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// fence finds a block of a document of the guide, with the marker above it.
var fence = regexp.MustCompile("(?m)^(?:<!-- ([^\n]*) -->\n)?```([a-z]*)\n((?:[^\n]*\n)*?)```$")

// TestGuideShowsWhatRuns: a block of Go or TypeScript in the guide equals the file that its marker names, or
// FILE#NAME, a top-level declaration of it with its comment; such files are compiled with all
// others. Commands are a walk, or a build that TestWalks or TestTypeScriptWalks runs.
func TestGuideShowsWhatRuns(t *testing.T) {
	top := filepath.Join("..", "..")
	blocks := 0
	for _, document := range guide(t, top) {
		text, err := os.ReadFile(document)
		must(t, err)
		for _, m := range fence.FindAllStringSubmatch(string(text), -1) {
			blocks++
			if err := checkBlock(top, m[1], m[2], m[3]); err != nil {
				t.Errorf("%s: %v", filepath.Base(document), err)
			}
		}
	}
	if blocks < 10 {
		t.Errorf("only %d blocks were found", blocks)
	}
}

func checkBlock(top, marker, language, text string) error {
	switch language {
	case "go":
		source, err := shown(top, marker)
		if err == nil && text != source {
			err = fmt.Errorf("the block differs from %s", marker)
		}
		return err
	case "ts":
		file, name, _ := strings.Cut(marker, "#")
		source, err := os.ReadFile(filepath.Join(top, file))
		if err == nil && (name == "" || !strings.Contains(text, "function "+name+"(") ||
			!strings.Contains(string(source), "\n"+text)) {
			err = fmt.Errorf("the block differs from %s", marker)
		}
		return err
	case "sh":
		if strings.HasPrefix(marker, "walk: ") || marker == "typescript" {
			return nil
		}
		if marker != "build" {
			return fmt.Errorf("nothing runs these commands: %s", text)
		}
		for line := range strings.Lines(text) {
			if _, isTest := strings.CutPrefix(line, "go test ./"); isTest {
				continue // of a package of this module, which is tested with the others
			}
			if _, ok := strings.CutPrefix(line, "go build -o bin/ "); !ok {
				return fmt.Errorf("is no build into bin: %s", line)
			}
		}
		return nil
	case "text": // the output of earlier commands, or a picture
		return nil
	default:
		return fmt.Errorf("a block is of %q, which is neither Go, ts, sh nor text", language)
	}
}

// shown returns the text named by a marker: a file without its package comment, or a declaration.
func shown(top, marker string) (string, error) {
	file, name, isPart := strings.Cut(marker, "#")
	if !strings.HasSuffix(file, ".go") {
		return "", fmt.Errorf("a block of Go has no marker that names its file, but %q", marker)
	}
	source, err := os.ReadFile(filepath.Join(top, file))
	if err != nil {
		return "", err
	}
	if !isPart {
		_, text, _ := strings.Cut("\n"+string(source), "\npackage ")
		return "package " + text, nil
	}
	declaration := regexp.MustCompile(`(?ms)(?:^//[^\n]*\n)*^(?:func|type|var|const) (?:\([^\n]*?\) )?` +
		regexp.QuoteMeta(name) + `\b.*?^[})]\n`)
	if text := declaration.FindString(string(source)); text != "" {
		return text, nil
	}
	return "", fmt.Errorf("%s declares no %s", file, name)
}

// guideBuilds returns the arguments of all builds of the guide, except the output paths.
func guideBuilds(t *testing.T, top string) (builds [][]string) {
	t.Helper()
	for _, document := range guide(t, top) {
		text, err := os.ReadFile(document)
		must(t, err)
		for _, m := range fence.FindAllStringSubmatch(string(text), -1) {
			for line := range strings.Lines(m[3]) {
				if packages, ok := strings.CutPrefix(line, "go build -o bin/ "); ok && m[1] == "build" {
					builds = append(builds, strings.Fields(packages))
				}
			}
		}
	}
	return builds
}

func guide(t *testing.T, top string) []string {
	t.Helper()
	documents, err := filepath.Glob(filepath.Join(top, "docs", "guide", "*.md"))
	must(t, err)
	return documents
}

func TestGuideRefusesWrongBlocks(t *testing.T) {
	top := filepath.Join("..", "..")
	part := "docs/guide/tour/roster/main.go#text"
	right, err := shown(top, part)
	must(t, err)
	for _, c := range []struct {
		marker, language, text string
		ok                     bool
	}{
		{part, "go", right, true},
		{part, "go", strings.Replace(right, "string", "int", 1), false},
		{"", "go", right, false},
		{"docs/guide/tour/roster/main.go#nobody", "go", right, false},
		{"docs/guide/tour/roster/none.go", "go", right, false},
		{"", "sh", "rm -r data\n", false},
		{"build", "sh", "go run .\n", false},
		{"walk: tour", "sh", "true\n", true},
		{"examples/pipeline/worker/embed.ts#embed", "ts", "async function embed() {}\n", false},
		{"", "", "what\n", false},
	} {
		if err := checkBlock(top, c.marker, c.language, c.text); (err == nil) != c.ok {
			t.Errorf("%q %s: %v", c.marker, c.language, err)
		}
	}
}
