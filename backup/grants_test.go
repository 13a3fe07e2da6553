package backup_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/backup"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/percolatortest"
)

func grant(t testing.TB, db *percolator.DB, table, name, role string) {
	t.Helper()
	_, err := handle.Client(db).Admin().SetGrant(t.Context(),
		&pb.SetGrantRequest{Table: table, Name: name, Role: role})
	must(t, err)
}

// granted returns a table's grants as NAME:ROLE.
func granted(t testing.TB, db *percolator.DB, table string) string {
	t.Helper()
	r, err := handle.Client(db).Admin().Grants(t.Context(), &pb.GrantsRequest{Table: table})
	must(t, err)
	var out []string
	for _, g := range r.GetGrants() {
		out = append(out, g.Name+":"+g.Role)
	}
	return strings.Join(out, " ")
}

// TestGrantsRestored: a restored table has the grants of the backup before any row is written,
// under any name and in any cluster, and existing grants stay.
func TestGrantsRestored(t *testing.T) {
	from, to := start(t, 100), percolatortest.Start(t, nil)
	must(t, from.DB().CreateTable(t.Context(), percolator.TableSpec{Name: "open"}))
	grant(t, from.DB(), "bank", "ann", "reader")
	grant(t, from.DB(), "bank", "shop", "writer")
	l := open(t, t.TempDir())
	create(t, from.DB(), l, backup.CreateOptions{})
	create(t, from.DB(), l, backup.CreateOptions{Incremental: true})
	chosen := open(t, t.TempDir())
	create(t, from.DB(), chosen, backup.CreateOptions{Tables: []string{"bank"}})
	restore := func(db *percolator.DB, l *backup.Location, tables map[string]string,
		want string) *backup.Restored {
		t.Helper()
		o := backup.RestoreOptions{Tables: tables}
		o.Progress = func(backup.Progress) {
			if have := granted(t, db, tables["bank"]); have != want {
				t.Errorf("OPENED: while rows are restored the grants are %q, want %q", have, want)
			}
		}
		r, err := backup.Restore(t.Context(), handle.Client(db), l, o)
		must(t, err)
		if have := granted(t, db, tables["bank"]); have != want {
			t.Errorf("OPENED: after the restore the grants are %q, want %q", have, want)
		}
		return r
	}
	// In the other cluster, the old table's id belongs to a different table.
	must(t, to.DB().CreateTable(t.Context(), percolator.TableSpec{Name: "first"}))
	r := restore(to.DB(), l, map[string]string{"bank": "bank", "open": "open"}, "ann:reader shop:writer")
	if len(r.Granted) != 1 || r.Granted[0].Table != "bank" || len(r.Granted[0].Grants) != 2 ||
		len(r.Ungranted) != 0 || granted(t, to.DB(), "open")+granted(t, to.DB(), "first") != "" {
		t.Errorf("restored: %+v", r)
	}
	restore(from.DB(), chosen, map[string]string{"bank": "copy"}, "ann:reader shop:writer")
	must(t, to.DB().CreateTable(t.Context(), percolator.TableSpec{Name: "own"}))
	grant(t, to.DB(), "own", "shop", "reader")
	restore(to.DB(), chosen, map[string]string{"bank": "own"}, "ann:reader shop:reader")
}

// TestGrantsOfEarlierBuilds: backups of earlier builds have grants only in the policy, or none, and
// the restore reports it.
func TestGrantsOfEarlierBuilds(t *testing.T) {
	from, dir := start(t, 10), t.TempDir()
	grant(t, from.DB(), "bank", "ann", "reader")
	l := open(t, dir)
	create(t, from.DB(), l, backup.CreateOptions{})
	for _, c := range []struct {
		without, want string
		ungranted     []string
	}{{"grants", "ann:reader", nil}, {"policy", "", []string{"bank"}}} {
		rewrite(t, dir, func(manifest map[string]any) {
			if c.without == "policy" {
				delete(manifest, "policy")
			}
			for _, of := range manifest["tables"].([]any) {
				delete(of.(map[string]any), "grants")
			}
		})
		to := percolatortest.Start(t, nil)
		r, err := backup.Restore(t.Context(), handle.Client(to.DB()), l, backup.RestoreOptions{})
		must(t, err)
		if have := granted(t, to.DB(), "bank"); have != c.want || !slices.Equal(r.Ungranted, c.ungranted) {
			t.Errorf("OPENED: without %s: %q, %+v", c.without, have, r)
		}
	}
}

// rewrite changes the manifest of the only backup in dir and seals it again.
func rewrite(t testing.TB, dir string, change func(map[string]any)) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*", "manifest"))
	must(t, err)
	data, err := os.ReadFile(names[0])
	must(t, err)
	_, body, _ := strings.Cut(string(data), "\n")
	manifest := map[string]any{}
	decoder := json.NewDecoder(strings.NewReader(body))
	decoder.UseNumber()
	must(t, decoder.Decode(&manifest))
	change(manifest)
	changed, err := json.Marshal(manifest)
	must(t, err)
	sum := sha256.Sum256(changed)
	line := "percolator backup manifest 1 sha256 " + hex.EncodeToString(sum[:]) + "\n"
	must(t, os.WriteFile(names[0], append([]byte(line), changed...), 0o600))
}
