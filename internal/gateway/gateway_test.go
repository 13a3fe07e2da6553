package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	gw "github.com/percolator-go/percolator/api/gateway/v1"
	"github.com/percolator-go/percolator/internal/leaktest"
	"github.com/percolator-go/percolator/internal/rpc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/txn/txntest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// served is a cluster in memory behind a gateway.
type served struct {
	*testing.T
	cluster *txntest.Cluster
	process *txntest.Process
	server  *Server
	url     string
	http    *http.Client
	data    gw.GatewayClient // JSON over HTTP/1.1
}

func serve(t *testing.T, change func(*Config)) *served {
	t.Helper()
	s := &served{T: t, cluster: txntest.New(), http: &http.Client{Transport: &http.Transport{}}}
	s.cluster.AddTable("t", "m")
	s.process = s.cluster.Process(1, 1)
	clients := rpc.NewServer(s.process, rpc.ServerConfig{})
	cfg := Config{
		Addr: "127.0.0.1:0", Server: clients, NodeID: 1, Incarnation: 1,
		Advertise:      func(bound string) (string, error) { return bound, nil },
		CreateOutcomes: func(context.Context) error { s.cluster.AddTable(rpc.OutcomesTable); return nil },
		Client:         txn.Config{SettleTimeout: 20 * time.Millisecond},
	}
	if change != nil {
		change(&cfg)
	}
	var err error
	if s.server, err = Open(cfg); err != nil {
		t.Fatal(err)
	}
	s.url = "http://" + s.server.Addr()
	s.data = gw.NewGatewayClient(s.http, s.url, connect.WithProtoJSON())
	t.Cleanup(func() {
		s.process.Inject(nil)
		s.http.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.server.Close(ctx); err != nil {
			t.Error(err)
		}
		clients.Stop()
	})
	return s
}

// transact sends a request of Transact.
func (s *served) transact(req *gw.TransactRequest) (*gw.TransactResponse, error) {
	resp, err := s.data.Transact(s.Context(), connect.NewRequest(req))
	if err != nil {
		return nil, err
	}
	return resp.Msg, nil
}

// set writes one cell of the table.
func (s *served) set(row, value string) *gw.TransactResponse {
	s.Helper()
	resp, err := s.transact(&gw.TransactRequest{Writes: []*gw.CellWrite{write(row, value)}})
	if err != nil {
		s.Fatal(err)
	}
	return resp
}

// get returns the value of one cell of the table, "" if there is none.
func (s *served) get(row string) string {
	s.Helper()
	resp, err := s.data.Read(s.Context(), connect.NewRequest(&gw.ReadRequest{Keys: []*gw.Key{key(row)}}))
	if err != nil {
		s.Fatal(err)
	}
	return resp.Msg.Cells[0].GetValue()
}

func key(row string) *gw.Key {
	return &gw.Key{Table: "t", RowAs: &gw.Key_Row{Row: row}, ColumnAs: &gw.Key_Column{Column: "c"}}
}

func write(row, value string) *gw.CellWrite {
	return &gw.CellWrite{Table: "t", RowAs: &gw.CellWrite_Row{Row: row}, ColumnAs: &gw.CellWrite_Column{Column: "c"},
		ValueAs: &gw.CellWrite_Value{Value: value}}
}

// equals is the condition that a cell has a value, or none if it is empty.
func equals(row, value string) *gw.Condition {
	c := &gw.Condition{Table: "t", RowAs: &gw.Condition_Row{Row: row}, ColumnAs: &gw.Condition_Column{Column: "c"}}
	if value == "" {
		c.Holds = &gw.Condition_Exists{}
	} else {
		c.Holds = &gw.Condition_Equals{Equals: value}
	}
	return c
}

// reason returns the reason of a failed call, REASON_UNSPECIFIED if it has none.
func reason(err error) gw.Failure_Reason {
	e, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return gw.Failure_REASON_UNSPECIFIED
	}
	for _, d := range e.Details() {
		if f, err := d.Value(); err == nil {
			return f.(*gw.Failure).GetReason()
		}
	}
	return gw.Failure_REASON_UNSPECIFIED
}

// post sends a request as curl would, and returns the status and the answer.
func (s *served) post(method, body string, header ...string) (int, string) {
	s.Helper()
	req, err := http.NewRequestWithContext(s.Context(), http.MethodPost, s.url+"/percolator.gateway.v1."+method,
		strings.NewReader(body))
	if err != nil {
		s.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	answer, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(answer)
}

// TestProtocols: transactions and streams work by every protocol, over HTTP/1.1 and HTTP/2.
func TestProtocols(t *testing.T) {
	s := serve(t, nil)
	for i := range 25 {
		s.set(string(rune('a'+i)), "v")
	}
	both := &http.Protocols{}
	both.SetUnencryptedHTTP2(true)
	two := &http.Client{Transport: &http.Transport{Protocols: both}}
	defer two.CloseIdleConnections()
	for name, client := range map[string]gw.GatewayClient{
		"json/1": s.data, "json/2": gw.NewGatewayClient(two, s.url, connect.WithProtoJSON()),
		"connect/1": gw.NewGatewayClient(s.http, s.url), "connect/2": gw.NewGatewayClient(two, s.url),
		"web/1": gw.NewGatewayClient(s.http, s.url, connect.WithGRPCWeb()),
		"web/2": gw.NewGatewayClient(two, s.url, connect.WithGRPCWeb()),
		"grpc":  gw.NewGatewayClient(two, s.url, connect.WithGRPC()),
	} {
		t.Run(name, func(t *testing.T) {
			resp, err := client.Transact(t.Context(), connect.NewRequest(&gw.TransactRequest{
				Reads: []*gw.Key{key("a")}, Writes: []*gw.CellWrite{write("z", name)},
			}))
			if err != nil || !resp.Msg.Committed || resp.Msg.Cells[0].GetValue() != "v" {
				t.Fatalf("%v, %v", resp, err)
			}
			stream, err := client.Scan(t.Context(), connect.NewRequest(&gw.ScanRequest{
				Range: &gw.RowRange{Table: "t"}, PageCells: 4,
			}))
			if err != nil {
				t.Fatal(err)
			}
			cells := 0
			for stream.Receive() {
				cells += len(stream.Msg().Cells)
			}
			if err := stream.Err(); err != nil || cells != 26 {
				t.Errorf("%d cells, %v", cells, err)
			}
			_ = stream.Close()
			_, err = client.Read(t.Context(), connect.NewRequest(&gw.ReadRequest{Keys: []*gw.Key{{Table: "no"}}}))
			if connect.CodeOf(err) != connect.CodeNotFound || reason(err) != gw.Failure_REASON_NO_TABLE {
				t.Errorf("a table that does not exist: %v", err)
			}
		})
	}
}

// TestBytes: every row, column and value survives, as text or as base64, whatever the encoding of the answer.
func TestBytes(t *testing.T) {
	s := serve(t, nil)
	for _, text := range []string{"", "text", "ü", "\xff\x00", "\x00"} {
		raw := []byte(text)
		_, err := s.transact(&gw.TransactRequest{Writes: []*gw.CellWrite{{
			Table: "t", RowAs: &gw.CellWrite_RowBytes{RowBytes: raw}, ColumnAs: &gw.CellWrite_ColumnBytes{ColumnBytes: raw},
			ValueAs: &gw.CellWrite_ValueBytes{ValueBytes: raw},
		}}})
		if err != nil {
			t.Fatal(err)
		}
		k := &gw.Key{Table: "t", RowAs: &gw.Key_RowBytes{RowBytes: raw}, ColumnAs: &gw.Key_ColumnBytes{ColumnBytes: raw}}
		for _, enc := range []gw.Encoding{gw.Encoding_ENCODING_UNSPECIFIED, gw.Encoding_ENCODING_BYTES} {
			resp, err := s.data.Read(t.Context(), connect.NewRequest(&gw.ReadRequest{Keys: []*gw.Key{k}, Encoding: enc}))
			if err != nil {
				t.Fatal(err)
			}
			c := resp.Msg.Cells[0]
			_, isText := c.ValueAs.(*gw.Cell_Value)
			if !c.Found || c.GetValue()+string(c.GetValueBytes()) != text || c.GetRow()+string(c.GetRowBytes()) != text ||
				isText != (enc == gw.Encoding_ENCODING_UNSPECIFIED && text != "\xff\x00") {
				t.Errorf("%q came back as %v", text, c)
			}
		}
	}
}

// TestConditions: a transaction commits only if all of its conditions hold, and says which did not.
func TestConditions(t *testing.T) {
	s := serve(t, nil)
	at := s.set("a", "1").CommitTimestamp
	same := equals("a", "")
	same.Holds = &gw.Condition_CommitTimestamp{CommitTimestamp: at}
	exists := equals("a", "")
	exists.Holds = &gw.Condition_Exists{Exists: true}
	resp, err := s.transact(&gw.TransactRequest{
		Conditions: []*gw.Condition{equals("a", "1"), same, exists, equals("b", "")},
		Writes:     []*gw.CellWrite{write("b", "2")}, Deletes: []*gw.Key{key("a")},
	})
	if err != nil || !resp.Committed || s.get("b") != "2" || s.get("a") != "" {
		t.Fatalf("%v, %v", resp, err)
	}
	resp, err = s.transact(&gw.TransactRequest{
		Conditions: []*gw.Condition{equals("b", "2"), equals("a", "1"), same, exists},
		Writes:     []*gw.CellWrite{write("b", "3")},
	})
	if err != nil || resp.Committed || !slices.Equal(resp.FailedConditions, []uint32{1, 2, 3}) || s.get("b") != "2" {
		t.Errorf("CONDITION-IGNORED: %v, %v", resp, err)
	}
}

// TestPages: pages of any size, in both directions, contain each cell once; the token of another request is
// refused.
func TestPages(t *testing.T) {
	s := serve(t, nil)
	var writes []*gw.CellWrite
	for _, row := range []string{"", "a", "b", "wide", "x", "y"} {
		for i := range 1 + 20*(len(row)/4) {
			w := write(row, "v")
			w.ColumnAs = &gw.CellWrite_Column{Column: string(rune('a' + i))}
			writes = append(writes, w)
		}
	}
	if _, err := s.transact(&gw.TransactRequest{Writes: writes}); err != nil {
		t.Fatal(err)
	}
	for _, size := range []uint32{1, 2, 7, 0} {
		for _, limit := range []uint32{0, 4} {
			for _, reverse := range []bool{false, true} {
				req := &gw.ScanRequest{
					Range: &gw.RowRange{Table: "t"}, PageCells: size, Limit: limit, Reverse: reverse,
				}
				want := len(writes)
				switch {
				case limit == 4 && reverse:
					want = 1 + 1 + 21 + 1
				case limit == 4:
					want = 3 + 21
				}
				seen := map[string]bool{}
				total := 0
				for {
					resp, err := s.data.ScanPage(t.Context(), connect.NewRequest(req))
					if err != nil {
						t.Fatal(err)
					}
					for _, c := range resp.Msg.Cells {
						seen[c.GetRow()+"/"+c.GetColumn()] = true
						total++
					}
					if req.PageToken = resp.Msg.PageToken; req.PageToken == "" {
						break
					}
					s.set("new", "later") // which the scan's snapshot does not contain
				}
				if total != want || len(seen) != want {
					t.Errorf("pages of %d, limit %d, reverse %v: %d cells, %d different ones; want %d", size, limit, reverse,
						total, len(seen), want)
				}
				if _, err := s.transact(&gw.TransactRequest{Deletes: []*gw.Key{key("new")}}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	resp, err := s.data.ScanPage(t.Context(), connect.NewRequest(&gw.ScanRequest{
		Range: &gw.RowRange{Table: "t"}, PageCells: 1,
	}))
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range []string{resp.Msg.PageToken, "x", "AAAA"} {
		_, err = s.data.ScanPage(t.Context(), connect.NewRequest(&gw.ScanRequest{
			Range: &gw.RowRange{Table: "t", Columns: []string{"a"}}, PageToken: token,
		}))
		if reason(err) != gw.Failure_REASON_INVALID {
			t.Errorf("token %q of another scan: %v", token, err)
		}
	}
}

// TestOpenAPI: the document is served, and names each method.
func TestOpenAPI(t *testing.T) {
	s := serve(t, nil)
	resp, err := s.http.Get(s.url + "/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, _ := io.ReadAll(resp.Body)
	services := gw.File_gateway_v1_gateway_proto.Services()
	for i := range services.Len() {
		for j := range services.Get(i).Methods().Len() {
			m := services.Get(i).Methods().Get(j)
			if path := "/" + string(services.Get(i).FullName()) + "/" + string(m.Name()) + ":"; !bytes.Contains(text, []byte(path)) {
				t.Errorf("the document lacks %s", path)
			}
		}
	}
}

// TestErrors: an error has a code, a reason and a remedy, in JSON too.
func TestErrors(t *testing.T) {
	s := serve(t, nil)
	for body, want := range map[string]string{
		`{"writes":[{"table":"no","row":"r","column":"c","value":"v"}]}`:           "not_found REASON_NO_TABLE",
		`{"writes":[{"row":"r"}]}`:                                                 "invalid_argument REASON_INVALID",
		`{"conditions":[{"table":"t"}]}`:                                           "invalid_argument REASON_INVALID",
		`{"writes":[{"table":"t","row":"r"},{"table":"t","row":"r"}]}`:             "invalid_argument REASON_INVALID",
		`{"writes":[{"table":"t","row":"r"}],"deletes":[{"table":"t","row":"r"}]}`: "invalid_argument REASON_INVALID",
		`{"writes":[{"table":"t","row":"` + strings.Repeat("x", 5000) + `"}]}`:     "invalid_argument REASON_TOO_LARGE",
		`{"reads":[{"table":"` + rpc.OutcomesTable + `"}]}`:                        "permission_denied REASON_PERMISSION",
		`{"idempotencyKey":"` + strings.Repeat("x", 129) + `"}`:                    "invalid_argument REASON_INVALID",
	} {
		_, answer := s.post("Gateway/Transact", body)
		var got struct {
			Code    string
			Details []struct {
				Debug struct{ Reason, Remedy string }
			}
		}
		if err := json.Unmarshal([]byte(answer), &got); err != nil || len(got.Details) != 1 ||
			got.Code+" "+got.Details[0].Debug.Reason != want || got.Details[0].Debug.Remedy == "" {
			t.Errorf("%.80s: %s; want %s", body, answer, want)
		}
	}
	for _, body := range []string{`{"writes":`, `[]`, `{"unknown":1}`, "\x00\xff"} {
		if code, answer := s.post("Gateway/Transact", body); code != 400 {
			t.Errorf("%q: %d %s", body, code, answer)
		}
	}
	if code, _ := s.post("Gateway/Nothing", "{}"); code != 404 {
		t.Errorf("a method that does not exist: %d", code)
	}
	if code, answer := s.post("Changes/Watch", "{}", "Content-Type", "text/plain"); code != 415 {
		t.Errorf("a content type of a form: %d %s", code, answer)
	}
}
