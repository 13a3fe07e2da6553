// Command sbom writes the software bill of materials of a Go binary, as CycloneDX JSON, to
// standard output: the modules that the linker recorded in it. The same binary gives the
// same bytes.
package main

import (
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: sbom BINARY")
		os.Exit(2)
	}
	if err := write(os.Stdout, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func write(w io.Writer, path string) error {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return err
	}
	digest, err := digest(path)
	if err != nil {
		return err
	}
	if len(info.Deps) == 0 {
		return errors.New("the binary names no modules; was it built outside of a module?")
	}
	parts := make([]cdx.Component, 0, len(info.Deps)+1)
	for _, m := range info.Deps {
		parts = append(parts, component(m))
	}
	parts = append(parts, component(&debug.Module{Path: "stdlib", Version: info.GoVersion}))
	program := component(&info.Main)
	program.Type, program.Name = cdx.ComponentTypeApplication, filepath.Base(path)
	program.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: digest}}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Component: &program}
	bom.Components = &parts
	return cdx.NewBOMEncoder(w, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
}

// component describes a module or its replacement.
func component(m *debug.Module) cdx.Component {
	if m.Replace != nil {
		m = m.Replace
	}
	version := cmp.Or(m.Version, "(devel)")
	url := "pkg:golang/" + m.Path + "@" + version
	return cdx.Component{
		Type: cdx.ComponentTypeLibrary, BOMRef: url, Name: m.Path, Version: version, PackageURL: url,
	}
}

func digest(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", h.Sum(nil)), nil
}
