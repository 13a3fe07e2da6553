package main

import (
	"bytes"
	"os"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// The test's own binary has modules in it: the library that writes the file.
func TestNamesTheModules(t *testing.T) {
	var first, second bytes.Buffer
	for _, w := range []*bytes.Buffer{&first, &second} {
		if err := write(w, os.Args[0]); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("the same binary gave different bytes")
	}
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(&first, cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, c := range *bom.Components {
		found[c.Name] = c.Version != ""
	}
	if !found["github.com/CycloneDX/cyclonedx-go"] || !found["stdlib"] {
		t.Errorf("the modules are %v", found)
	}
	if err := write(&first, "main_test.go"); err == nil {
		t.Error("a text was mistaken for a binary")
	}
}
