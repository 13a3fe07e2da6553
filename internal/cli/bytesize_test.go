package cli

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/percolator-go/percolator/node/config"
)

func TestByteSize(t *testing.T) {
	for text, want := range map[string]uint64{
		"0": 0, "7": 7, "7B": 7, "1KiB": 1 << 10, "96MiB": 96 << 20, "100663296": 96 << 20,
		"3 GiB": 3 << 30, "2TiB": 2 << 40, "1536KiB": 1536 << 10,
	} {
		var b, again byteSize
		if err := b.Set(text); err != nil || uint64(b) != want {
			t.Errorf("%s: %d, %v", text, b, err)
		}
		if err := again.Set(b.String()); err != nil || again != b {
			t.Errorf("%s: printed as %s, read as %d, %v", text, b.String(), again, err)
		}
	}
	for _, text := range []string{"", "MiB", "-1", "1.5GiB", "96MB", "96M", "1iB", "99999999999TiB",
		"1e9", "1 2"} {
		var b byteSize
		if err := b.Set(text); err == nil {
			t.Errorf("%q: %d", text, b)
		}
	}
}

// TestUpkeepSettings: what the node does to its data by itself can be told on the command
// line, in the environment and in the file; faults name the flag.
func TestUpkeepSettings(t *testing.T) {
	file := writeFile(t, "split-load: 1000\nno-splits: true\nsplit:\n  max-tablets: 7\nno-collection: true\n")
	code, cfg, stderr := startApp(t, &fakeNode{},
		[]string{
			"PERCOLATOR_COLLECTION_INTERVAL=3s", "PERCOLATOR_SPLIT_SIZE=1GiB",
			"PERCOLATOR_CONFIG=" + file,
		},
		[]func(){func() {}}, "--dir", t.TempDir(), "--insecure", "--split-size", "64MiB",
		"--collection-max-hold", "2h",
		"--snapshot-rate", "8MiB", "--snapshots-at-once", "3")
	splits := config.Splits{MaxBytes: 64 << 20, MaxLoad: 1000, MaxTablets: 7, Off: true}
	collection := config.Collection{Interval: 3 * time.Second, MaxHold: 2 * time.Hour, Off: true}
	if code != 0 || !reflect.DeepEqual(cfg.Splits, splits) ||
		cfg.Snapshots != (config.Snapshots{Rate: 8 << 20, AtOnce: 3}) ||
		!reflect.DeepEqual(cfg.Collection, collection) {
		t.Errorf("%d, %+v, %+v, %+v\n%s", code, cfg.Splits, cfg.Snapshots, cfg.Collection, stderr)
	}
	for flag, value := range map[string]string{"--split-max-tablets": "-1",
		"--collection-max-hold": "1s", "--split-size": "96MB", "--snapshot-rate": "1KiB"} {
		code, _, stderr := runApp(t, nil, nil, "start", "--dir", t.TempDir(), "--insecure", flag,
			value)
		if code == 0 || !strings.Contains(stderr, flag) {
			t.Errorf("%s %s: %d\n%s", flag, value, code, stderr)
		}
	}
}
