package certs_test

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/percolator-go/percolator/internal/certs"
)

// TestShowKeys: a key that a node would refuse is reported as a problem.
func TestShowKeys(t *testing.T) {
	dir := t.TempDir()
	if _, err := certs.CreateCA(certs.Request{Dir: dir, Name: "x"}); err != nil {
		t.Fatal(err)
	}
	for bytes, good := range map[int]bool{16: false, 24: false, 32: true} {
		line := base64.StdEncoding.EncodeToString(make([]byte, bytes))
		if err := os.WriteFile(filepath.Join(dir, certs.GossipKeys), []byte(line+"\n"),
			0o600); err != nil {
			t.Fatal(err)
		}
		all, err := certs.Show(dir, time.Now())
		if err != nil || len(all) != 2 || all[1].File != certs.GossipKeys ||
			(all[1].Problem == "") != good {
			t.Errorf("a key of %d bytes: %+v, %v", bytes, all, err)
		}
	}
}
