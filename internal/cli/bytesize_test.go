package cli

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/percolator-go/percolator/node/config"
)

// TestUpkeepSettings: the settings of the node's background work can be given on the command line,
// in the environment and in the file; errors name the flag.
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
