package pbjson_test

import (
	"encoding/json"
	"testing"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/pbjson"
)

func TestMarshal(t *testing.T) {
	got, err := pbjson.Marshal(&pb.LockInfo{
		Cell: &pb.Cell{Table: 16, Row: []byte("Bob"), Column: []byte("b\xff")},
		Lock: &pb.Lock{StartTs: 1<<63 + 1, Kind: pb.Kind_KIND_DELETE},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"cell":{"class":0,"column":{"base64":"Yv8="},"row":"Bob","table":16},"intent":false,` +
		`"lock":{"expiry":0,"kind":"KIND_DELETE","long":false,"min_commit_ts":0,"origin":0,"primary":null,"secondaries":[],"start_ts":9223372036854775809,"value":"","worker":null}}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestMarshalListsAndOneofs(t *testing.T) {
	got, err := pbjson.Marshal(&pb.TabletRequest{TabletId: 2,
		Op: &pb.TabletRequest_Commit{Commit: &pb.CommitRequest{
			Cells: []*pb.Cell{{Table: 16, Row: []byte("r")}},
		}}})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"commit":{"cells":[{"class":0,"column":"","row":"r","table":16}],"clear":false,"commit_ts":0,"decided":false,"decides":false,"intents":[],"start_ts":0},` +
		`"deadline_ms":0,"epoch":0,"max_answer_bytes":0,"tablet_id":2,"trace":""}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func FuzzBytesRoundTrip(f *testing.F) {
	f.Add([]byte("text"))
	f.Add([]byte("\xff\x00"))
	f.Add([]byte(`{"base64":"x"}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		text, err := json.Marshal(pbjson.Bytes(in))
		if err != nil {
			t.Fatal(err)
		}
		var out pbjson.Bytes
		if err := json.Unmarshal(text, &out); err != nil || string(out) != string(in) {
			t.Errorf("%q came back as %q by way of %s: %v", in, out, text, err)
		}
	})
}
