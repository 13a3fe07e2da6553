package store_test

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/store"
)

var (
	kills     = flag.Int("kills", 25, "rounds of TestKill")
	crashSeed = flag.Uint64("crash-seed", 0, "seed of TestKill and TestPowerLoss; 0 picks one")
)

// crashDirEnv makes this test binary the writer process of a crash test, on the directory that it names.
const (
	crashDirEnv    = "STORE_CRASH_DIR"
	crashNoSyncEnv = "STORE_CRASH_NOSYNC"
)

const (
	crashTablet = 3
	crashKeys   = 60
	bigEvery    = 16      // every so many steps write a value that goes to Badger's value log
	bigBytes    = 480_000 // above the value threshold of crashOptions
)

func crashOptions(dir string) store.Options {
	return store.Options{
		Dir: dir, MemTableSize: 4 << 20, MinFreeBytes: 8 << 20, // small: logs rotate and tables are flushed all the time
		NoSync: os.Getenv(crashNoSyncEnv) != "",
	}
}

// step is what the writer does in one Commit: a round of the state, and an append to the log that may overwrite its
// uncommitted end, with the HardState and perhaps a truncation.
type step struct {
	round                     uint64
	first, last, term, commit uint64
	truncate                  uint64
}

func (s step) String() string {
	return fmt.Sprintf("%d %d %d %d %d %d", s.round, s.first, s.last, s.term, s.commit, s.truncate)
}

func parseStep(line string) (s step, err error) {
	_, err = fmt.Sscan(line, &s.round, &s.first, &s.last, &s.term, &s.commit, &s.truncate)
	return s, err
}

// data is the payload of a log entry: it says which append wrote it, and has a length of its own.
func (s step) data(index uint64) []byte {
	text := fmt.Sprintf("%d.%d.%d.", s.term, index, s.round)
	return []byte(strings.Repeat(text, 1+int(s.round*index%100)))
}

func bigValue(round uint64) []byte {
	return bytes.Repeat(fmt.Appendf(nil, "%08d", round), bigBytes/8)
}

func bigCell(round uint64) mvcc.Cell { return cell(fmt.Sprintf("big%d", round/bigEvery%4), "c") }

// nextStep continues from what the store holds.
func nextStep(rng *rand.Rand, round, first, last, commit, term uint64) step {
	s := step{round: round, term: term, first: last + 1, commit: commit}
	if rng.IntN(8) == 0 { // a new leader overwrites some of what is not committed
		s.term++
		s.first = commit + 1 + uint64(rng.Int64N(int64(last-commit+1)))
	}
	s.last = s.first + uint64(rng.IntN(5))
	s.commit += uint64(rng.Int64N(int64(s.last - commit + 1)))
	if rng.IntN(10) == 0 && commit > first+20 {
		s.truncate = commit - 10
	}
	return s
}

// TestCrashWriter is no test: it is the process that the crash tests kill. It announces each step on standard output
// before its Commit, and acknowledges it after.
func TestCrashWriter(t *testing.T) {
	dir := os.Getenv(crashDirEnv)
	if dir == "" {
		t.Skip("the writer process of TestKill and TestPowerLoss")
	}
	s, err := store.Open(crashOptions(dir))
	if err != nil {
		t.Fatal(err)
	}
	l, err := s.OpenLog(crashTablet)
	if errors.Is(err, store.ErrNoLog) {
		b := new(store.Batch)
		store.InitialLog(b, crashTablet, store.InitialIndex, store.InitialTerm)
		commit(t, s, b)
		l, err = s.OpenLog(crashTablet)
	}
	if err != nil {
		t.Fatal(err)
	}
	snap := s.Snap()
	round, err := readRound(snap, crashKeys)
	snap.Close()
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(uint64(os.Getpid()), round))
	for {
		round++
		first, _ := l.FirstIndex()
		last, _ := l.LastIndex()
		hs, _, _ := l.InitialState()
		st := nextStep(rng, round, first, last, hs.GetCommit(), hs.GetTerm())
		fmt.Println("begin", st)
		if err := runStep(s, l, st); err != nil {
			fmt.Println("failed", err)
			return
		}
		fmt.Println("ack", st.round)
	}
}

func runStep(s *store.Store, l *store.Log, st step) error {
	state := round(st.round, crashKeys)
	if st.round%bigEvery == 0 {
		state.PutMutation(&mvcc.Mutation{Group: mvcc.GroupRaw, Cell: bigCell(st.round), Value: bigValue(st.round)})
	}
	var entries []*raftpb.Entry
	for i := st.first; i <= st.last; i++ {
		entries = append(entries, entry(i, st.term, st.data(i)))
	}
	logs := new(store.Batch)
	hs := hard(st.term, st.commit)
	l.Append(logs, entries, hs)
	var truncated uint64
	if st.truncate > 0 {
		var err error
		if truncated, err = l.Truncate(logs, st.truncate); err != nil {
			return err
		}
	}
	if err := s.LogWriter().Commit([]*store.Batch{state, logs}); err != nil {
		return err
	}
	l.Appended(entries, hs)
	l.Truncated(truncated)
	return nil
}

// model is what the acknowledged steps add up to; last is the newest of them, next what had begun, if anything.
type model struct {
	last, next step
	entries    map[uint64][]byte // the readable log
	big        map[mvcc.Cell]uint64
}

func newModel() *model { return &model{entries: map[uint64][]byte{}, big: map[mvcc.Cell]uint64{}} }

func (m *model) apply(s step) {
	for i := range m.entries {
		if i >= s.first || i <= s.truncate {
			delete(m.entries, i)
		}
	}
	for i := s.first; i <= s.last; i++ {
		m.entries[i] = s.data(i)
	}
	if s.round%bigEvery == 0 {
		m.big[bigCell(s.round)] = s.round
	}
	m.last, m.next = s, step{}
}

// follow reads the writer's lines until it ends, and calls crash when enough steps are acknowledged.
func (m *model) follow(out io.Reader, acks int, crash func()) (acknowledged int, failure string) {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		verb, rest, _ := strings.Cut(lines.Text(), " ")
		switch verb {
		case "begin":
			next, err := parseStep(rest)
			if err != nil {
				return acknowledged, "bad line: " + lines.Text()
			}
			m.next = next
		case "ack":
			m.apply(m.next)
			if acknowledged++; acknowledged == acks {
				crash()
			}
		case "failed":
			failure = rest
		}
	}
	return acknowledged, failure
}

// check opens the store and compares: all that was acknowledged, and of the step that had begun all or nothing.
func (m *model) check(dir string) error {
	s, err := store.Open(crashOptions(dir))
	if err != nil {
		return err
	}
	defer s.Close()
	snap := s.Snap()
	defer snap.Close()
	n, err := readRound(snap, crashKeys)
	if err != nil {
		return err
	}
	if n != m.last.round && n != m.next.round {
		return fmt.Errorf("lost: round %d was acknowledged, %d begun, and the state is of round %d", m.last.round, m.next.round, n)
	}
	if n == m.next.round && n != m.last.round { // state and log were one Txn
		m.apply(m.next)
	}
	for c, round := range m.big {
		if v, ok, err := snap.Raw(c); err != nil || !ok || !bytes.Equal(v, bigValue(round)) {
			return fmt.Errorf("lost: the long value of round %d: %d bytes, %v, %v", round, len(v), ok, err)
		}
	}
	m.next = step{}
	return m.checkLog(s)
}

func (m *model) checkLog(s *store.Store) error {
	l, err := s.OpenLog(crashTablet) // finds gaps
	if errors.Is(err, store.ErrNoLog) && m.last.round == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	hs, _, _ := l.InitialState()
	first, _ := l.FirstIndex()
	last, _ := l.LastIndex()
	if m.last.round == 0 {
		return nil
	}
	if hs.GetTerm() != m.last.term || hs.GetCommit() != m.last.commit || last != m.last.last || len(m.entries) != int(last+1-first) {
		return fmt.Errorf("lost: log is [%d, %d] with %v, acknowledged was %v with %d entries", first, last, hs, m.last, len(m.entries))
	}
	got, err := l.Entries(first, last+1, 1<<40)
	if err != nil {
		return err
	}
	for _, e := range got {
		if !bytes.Equal(e.Data, m.entries[e.GetIndex()]) {
			return fmt.Errorf("lost: entry %d is %.40q, want %.40q", e.GetIndex(), e.Data, m.entries[e.GetIndex()])
		}
	}
	return nil
}

// startWriter starts the writer process on dir. wait collects it and returns what it said on standard error.
func startWriter(t *testing.T, dir string, env ...string) (out io.Reader, kill func(), wait func() string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestCrashWriter$", "-test.timeout=60s")
	cmd.Env = append(append(os.Environ(), crashDirEnv+"="+dir), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill = func() { _ = cmd.Process.Kill() } // it may have ended
	t.Cleanup(kill)
	return out, kill, func() string { _ = cmd.Wait(); return stderr.String() }
}

func crashRand(t *testing.T) *rand.Rand {
	seed := *crashSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-crash-seed=%d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

// A process killed at any moment has lost nothing that it acknowledged, and tears nothing (invariants 1, 2 and 6).
func TestKill(t *testing.T) {
	rounds := *kills
	if testing.Short() {
		rounds = min(rounds, 6)
	}
	rng, dir, m, total := crashRand(t), t.TempDir(), newModel(), 0
	for i := range rounds {
		out, kill, wait := startWriter(t, dir)
		acks := rng.IntN(250)
		if acks == 0 { // during Open or soon after
			time.AfterFunc(time.Duration(rng.IntN(60))*time.Millisecond, kill)
		}
		delay := time.Duration(rng.IntN(1500)) * time.Microsecond
		got, failure := m.follow(out, acks, func() { time.AfterFunc(delay, kill) })
		if stderr := wait(); failure != "" || acks > 0 && got < acks {
			t.Fatalf("kill %d: the writer failed after %d steps: %s %s", i, got, failure, stderr)
		}
		total += got
		if err := m.check(dir); err != nil {
			t.Fatalf("kill %d, after %d steps: %v", i, total, err)
		}
	}
	t.Logf("%d kills, %d acknowledged steps", rounds, total)
}
