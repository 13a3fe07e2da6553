package percolator_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/percolator-go/percolator"
)

// TestChangeInJSON: a change survives the way through JSON, in the fields of a cell.
func TestChangeInJSON(t *testing.T) {
	key := percolator.CellKey{Row: "\xff", Column: percolator.Column{Table: "t", Name: "c"}}
	for text, c := range map[string]percolator.Change{
		`{"resolved":7}`: {Resolved: 7},
		`{"row":{"base64":"/w=="},"column":{"table":"t","name":"c"},"value":"v","commit_ts":3,"initial":true}`: {
			Cell: percolator.Cell{CellKey: key, Value: []byte("v"), CommitTS: 3}, Initial: true,
		},
		`{"row":{"base64":"/w=="},"column":{"table":"t","name":"c"},"value":"","commit_ts":3}`: {
			Cell: percolator.Cell{CellKey: key, Value: []byte{}, CommitTS: 3},
		},
		`{"row":{"base64":"/w=="},"column":{"table":"t","name":"c"},"commit_ts":3,"deleted":true}`: {
			Cell: percolator.Cell{CellKey: key, CommitTS: 3}, Deleted: true,
		},
	} {
		got, err := json.Marshal(c)
		if err != nil || string(got) != text {
			t.Errorf("%s, want %s: %v", got, text, err)
		}
		var back percolator.Change
		if err := json.Unmarshal(got, &back); err != nil || !reflect.DeepEqual(back, c) {
			t.Errorf("%s is read as %+v: %v", got, back, err)
		}
	}
}
