package bulk

import (
	"reflect"
	"strings"
	"testing"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// TestPlainRows: what the fast parser accepts, parseRow parses to the same row.
func TestPlainRows(t *testing.T) {
	var p plainParser
	for line, plain := range map[string]bool{
		`{"row":"bob","columns":{"a":"1","b":"2"}}`:                       true,
		`{ "row": "bob", "columns": { "a": "é", "b": "" } }`:              true,
		`{"row":"","columns":{"":""}}`:                                    true,
		`{"row":"bob","columns":{"b":"1","a":"2"}}`:                       false, // parseRow sorts them
		`{"row":"bob","columns":{"a":"1","a":"2"}}`:                       false,
		`{"row":"bob","columns":{"a":1}}`:                                 false,
		`{"row":"bob","columns":{"a":null}}`:                              false,
		`{"row":"bob","columns":{"a":"\u0041"}}`:                          false,
		"{\"row\":\"bob\",\"columns\":{\"a\":\"\t\"}}":                    false,
		"{\"row\":\"bob\",\"columns\":{\"a\":\"\xff\"}}":                  false,
		`{"row":"bob","columns":{"a":{"base64":"/w=="}}}`:                 false,
		`{"Row":"bob","columns":{"a":"1"}}`:                               false,
		`{"row":"bob","columns":{}}`:                                      false,
		`{"row":"bob","columns":{"a":"1",}}`:                              false,
		`{"row":"bob","columns":{"a":"1"}`:                                false,
		`{"row":"bob","columns":{"a":"1"}}}`:                              false,
		`{"row":"bob","columns":{"a":"1"},"x":"y"}`:                       false,
		`{"row":"` + strings.Repeat("x", 5000) + `","columns":{"a":"1"}}`: false,
	} {
		got, ok := p.parse([]byte(line), mvcc.DefaultLimits())
		if ok != plain {
			t.Errorf("%s: accepted %v", line, ok)
		}
		want, err := parseRow([]byte(line), mvcc.DefaultLimits())
		if ok && (err != nil || !reflect.DeepEqual(got, want)) {
			t.Errorf("%s: %+v, want %+v, %v", line, got, want, err)
		}
	}
	for i := range 2 * maxNames {
		p.intern([]byte(strings.Repeat("x", i)))
	}
	if len(p.names) > maxNames {
		t.Errorf("%d names are kept", len(p.names))
	}
}
