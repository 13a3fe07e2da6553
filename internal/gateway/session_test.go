package gateway

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	gw "github.com/percolator-go/percolator/api/gateway/v1"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/txn/txntest"
)

// begin begins a session.
func (s *served) begin(req *gw.BeginRequest) *gw.BeginResponse {
	s.Helper()
	resp, err := s.data.Begin(s.Context(), connect.NewRequest(req))
	if err != nil {
		s.Fatal(err)
	}
	return resp.Msg
}

// buffer writes a cell in a session.
func (s *served) buffer(session, row, value string) error {
	_, err := s.data.Write(s.Context(), connect.NewRequest(&gw.WriteRequest{
		Session: session, Writes: []*gw.CellWrite{write(row, value)},
	}))
	return err
}

// commit commits a session.
func (s *served) commit(session string) (uint64, error) {
	resp, err := s.data.Commit(s.Context(), connect.NewRequest(&gw.CommitRequest{Session: session}))
	if err != nil {
		return 0, err
	}
	return resp.Msg.CommitTimestamp, nil
}

// readIn returns the value of a cell as the session sees it.
func (s *served) readIn(session, row string) (string, error) {
	resp, err := s.data.Read(s.Context(), connect.NewRequest(&gw.ReadRequest{
		Keys: []*gw.Key{key(row)}, Snapshot: &gw.ReadRequest_Session{Session: session},
	}))
	if err != nil {
		return "", err
	}
	return resp.Msg.Cells[0].GetValue(), nil
}

// TestSession: a session sees its snapshot and its own writes; of two that write a cell one commits, and a
// repeated commit has the first one's result.
func TestSession(t *testing.T) {
	s := serve(t, nil)
	s.set("a", "1")
	one, two, past := s.begin(&gw.BeginRequest{}), s.begin(&gw.BeginRequest{}), s.begin(&gw.BeginRequest{ReadOnly: true})
	if one.Address != s.server.Addr() || one.NodeId != 1 || one.LeaseMs != 10000 {
		t.Errorf("%v", one)
	}
	for _, session := range []string{one.Session, two.Session} {
		if err := s.buffer(session, "a", "of "+session); err != nil {
			t.Fatal(err)
		}
		if got, err := s.readIn(session, "a"); err != nil || got != "of "+session {
			t.Errorf("its own write: %q, %v", got, err)
		}
	}
	at, err := s.commit(one.Session)
	if again, err2 := s.commit(one.Session); err != nil || err2 != nil || at == 0 || again != at {
		t.Errorf("committed at %d, %v; again %d, %v", at, err, again, err2)
	}
	for range 2 {
		if _, err := s.commit(two.Session); reason(err) != gw.Failure_REASON_CONFLICT {
			t.Errorf("the second writer: %v", err)
		}
	}
	if err := s.buffer(one.Session, "a", "later"); reason(err) != gw.Failure_REASON_SESSION_ENDED {
		t.Errorf("a write after the commit: %v", err)
	}
	if got, err := s.readIn(past.Session, "a"); err != nil || got != "1" || s.get("a") != "of "+one.Session {
		t.Errorf("the snapshot of before: %q, %v", got, err)
	}
	if _, err := s.commit(past.Session); reason(err) != gw.Failure_REASON_INVALID {
		t.Errorf("commit of a snapshot: %v", err)
	}
	three := s.begin(&gw.BeginRequest{})
	for range 2 {
		if _, err := s.data.Rollback(t.Context(), connect.NewRequest(&gw.RollbackRequest{Session: three.Session})); err != nil {
			t.Error(err)
		}
	}
	elsewhere := strings.Replace(three.Session, "1-", "2-", 1)
	if _, err := s.commit(elsewhere); reason(err) != gw.Failure_REASON_SESSION_ELSEWHERE {
		t.Errorf("a session of another node: %v", err)
	}
}

// TestLeaseEnds: a session whose client is silent ends, and its writes are dropped; calls renew the
// lease.
func TestLeaseEnds(t *testing.T) {
	s := serve(t, nil)
	silent, alive := s.begin(&gw.BeginRequest{LeaseMs: 3000}), s.begin(&gw.BeginRequest{LeaseMs: 3000})
	if err := s.buffer(silent.Session, "a", "lost"); err != nil {
		t.Fatal(err)
	}
	var err error
	for began := time.Now(); time.Since(began) < 15*time.Second; <-time.After(100 * time.Millisecond) {
		if _, err = s.data.KeepAlive(t.Context(), connect.NewRequest(&gw.KeepAliveRequest{Session: alive.Session})); err != nil {
			t.Fatalf("the session that is used: %v", err)
		}
		if s.open() == 1 {
			break
		}
	}
	if _, err := s.commit(silent.Session); reason(err) != gw.Failure_REASON_SESSION_ENDED || s.get("a") != "" {
		t.Errorf("SESSION-IMMORTAL: the silent client's session commits: %v", err)
	}
	if held := s.server.service.sessions.memory; !held.TryAcquire(sessionMemory) {
		t.Error("its memory was not released")
	}
}

// open returns the number of sessions.
func (s *served) open() int {
	all := s.server.service.sessions
	all.mu.Lock()
	defer all.mu.Unlock()
	return len(all.byID)
}

// TestSessionsAreBounded: one caller gets a share of the sessions, and what they buffer is bounded.
func TestSessionsAreBounded(t *testing.T) {
	s := serve(t, nil)
	var first string
	for i := range maxOwnSessions {
		b := s.begin(&gw.BeginRequest{})
		if i == 0 {
			first = b.Session
		}
	}
	_, err := s.data.Begin(t.Context(), connect.NewRequest(&gw.BeginRequest{}))
	if reason(err) != gw.Failure_REASON_OVERLOADED {
		t.Errorf("one session too many: %v", err)
	}
	all := s.server.service.sessions
	if !all.memory.TryAcquire(sessionMemory) {
		t.Fatal("no memory")
	}
	if err := s.buffer(first, "a", "v"); reason(err) != gw.Failure_REASON_OVERLOADED {
		t.Errorf("a write beyond the memory: %v", err)
	}
	all.memory.Release(sessionMemory)
	if _, err := s.data.Rollback(t.Context(), connect.NewRequest(&gw.RollbackRequest{Session: first})); err != nil {
		t.Fatal(err)
	}
	s.begin(&gw.BeginRequest{})
}

// TestCommitEndsItsSession: a session that was committed does not count against the bounds. Its answer is kept, for a
// bounded number of sessions.
func TestCommitEndsItsSession(t *testing.T) {
	s := serve(t, nil)
	all := s.server.service.sessions
	all.kept = maxOwnSessions
	commit := func(session string) (*connect.Response[gw.CommitResponse], error) {
		return s.data.Commit(t.Context(), connect.NewRequest(&gw.CommitRequest{Session: session}))
	}
	var ids []string
	for range maxOwnSessions + 2 {
		b := s.begin(&gw.BeginRequest{LeaseMs: 60_000})
		ids = append(ids, b.Session)
		if err := s.buffer(b.Session, "a", "v"); err != nil {
			t.Fatal(err)
		}
		if _, err := commit(b.Session); err != nil {
			t.Fatal(err)
		}
	}
	if !all.memory.TryAcquire(sessionMemory) {
		t.Fatal("committed sessions hold memory")
	}
	all.memory.Release(sessionMemory)
	for i, id := range ids {
		resp, err := commit(id)
		if i < 2 && reason(err) != gw.Failure_REASON_SESSION_ENDED || i >= 2 && (err != nil || resp.Msg.CommitTimestamp == 0) {
			t.Errorf("commit %d repeated: %v, %v", i, resp, err)
		}
	}
}

// TestSessionKey: a transaction with a key that has committed is not begun again.
func TestSessionKey(t *testing.T) {
	s := serve(t, nil)
	one, twin := s.begin(&gw.BeginRequest{IdempotencyKey: "key"}), s.begin(&gw.BeginRequest{IdempotencyKey: "key"})
	for i, session := range []string{one.Session, twin.Session} {
		if err := s.buffer(session, string(rune('a'+i)), "v"); err != nil {
			t.Fatal(err)
		}
	}
	at, err := s.commit(one.Session)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.commit(twin.Session); reason(err) != gw.Failure_REASON_CONFLICT {
		t.Errorf("COMMITTED-TWICE: another transaction with the key commits: %v", err)
	}
	if later := s.begin(&gw.BeginRequest{IdempotencyKey: "key"}); later.AlreadyCommitted != at || later.Session != "" {
		t.Errorf("begun again: %v; committed at %d", later, at)
	}
}

// TestDeadline: the work for a call ends at its deadline, and when its client has gone.
func TestDeadline(t *testing.T) {
	s := serve(t, nil)
	s.set("a", "1")
	for name, timeout := range map[string]string{"deadline": "50", "gone": ""} {
		t.Run(name, func(t *testing.T) {
			began, ended := make(chan struct{}, 100), make(chan struct{}, 100)
			s.process.Inject(func(*pb.TabletRequest) txntest.Fault {
				return txntest.Fault{Before: func(ctx context.Context) {
					began <- struct{}{}
					<-ctx.Done()
					ended <- struct{}{}
				}}
			})
			defer s.process.Inject(nil)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/percolator.gateway.v1.Gateway/Read",
				strings.NewReader(`{"keys":[{"table":"t","row":"a","column":"c"}]}`))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/json")
			if timeout != "" {
				req.Header.Set("Connect-Timeout-Ms", timeout)
			}
			answered := make(chan string, 1)
			go func() {
				resp, err := s.http.Do(req)
				if err != nil {
					answered <- err.Error()
					return
				}
				defer func() { _ = resp.Body.Close() }()
				text, _ := io.ReadAll(resp.Body)
				answered <- string(text)
			}()
			<-began
			if timeout == "" {
				cancel()
			}
			select {
			case <-ended:
			case <-time.After(time.Minute):
				t.Fatal("the work goes on")
			}
			if text := <-answered; timeout != "" && !strings.Contains(text, "REASON_DEADLINE") {
				t.Errorf("answered %s", text)
			}
		})
	}
}
