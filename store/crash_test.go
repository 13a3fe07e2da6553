package store_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
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
	crashDirEnv      = "STORE_CRASH_DIR"
	crashNoSyncEnv   = "STORE_CRASH_NOSYNC"
	crashMemTableEnv = "STORE_CRASH_MEMTABLE" // bytes; the smallest if it is not set
)

const (
	crashTablet = 3
	crashKeys   = 60
	bigEvery    = 4       // every so many rounds write a value of several chunks
	bigBytes    = 600_000 // three chunks, which with the smallest memtable take as many transactions
)

func crashOptions(dir string) store.Options {
	memTable, _ := strconv.ParseInt(os.Getenv(crashMemTableEnv), 10, 64)
	return store.Options{
		Dir: dir, MemTableSize: max(memTable, 2<<20), MinFreeBytes: 8 << 20, // small: logs rotate and tables are flushed all the time
		NoSync: os.Getenv(crashNoSyncEnv) != "",
	}
}

// step is what the writer does in a round: a synced append to the log, which may overwrite the log's uncommitted end, with
// the HardState and perhaps a truncation; then lazy batches of state, as many as subs says, one after the other.
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

// The state's keys hold the round times 4 plus the number of the batch in it.
func subs(round uint64) uint64       { return 1 + round%3 }
func stateAfter(round uint64) uint64 { return 4*round + subs(round) - 1 }

// stepKey holds the round of the last append; it goes in the append's batch.
var stepKey = []byte("step")

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
	number, err := lastStep(s)
	if err == nil && number > 0 {
		err = applyStep(s, number) // what a tablet does when it opens: apply what is in the log
	}
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(uint64(os.Getpid()), number))
	for {
		number++
		first, _ := l.FirstIndex()
		last, _ := l.LastIndex()
		hs, _, _ := l.InitialState()
		st := nextStep(rng, number, first, last, hs.GetCommit(), hs.GetTerm())
		fmt.Println("begin", st)
		apply := func() error { return applyStep(s, number) }
		err := appendStep(s, l, st, number%2 == 0, apply)
		if err == nil {
			fmt.Println("ack", st.round)
			if number%2 != 0 {
				err = apply()
			}
		}
		if err != nil {
			fmt.Println("failed", err)
			return
		}
	}
}

func lastStep(s *store.Store) (uint64, error) {
	snap := s.Snap()
	defer snap.Close()
	v, ok, err := snap.Get(stepKey)
	if !ok || err != nil {
		return 0, err
	}
	return binary.BigEndian.Uint64(v), nil
}

// appendStep writes a step's part of the log, synced. If overlap is set, the sync goes on beside what is applied.
func appendStep(s *store.Store, l *store.Log, st step, overlap bool, apply func() error) error {
	var entries []*raftpb.Entry
	for i := st.first; i <= st.last; i++ {
		entries = append(entries, entry(i, st.term, st.data(i)))
	}
	b := new(store.Batch)
	hs := hard(st.term, st.commit)
	l.Append(b, entries, hs)
	b.Put(stepKey, binary.BigEndian.AppendUint64(nil, st.round))
	var truncated uint64
	var err error
	if st.truncate > 0 {
		if truncated, err = l.Truncate(b, st.truncate); err != nil {
			return err
		}
	}
	if overlap {
		err = commitBeside(s.LogWriter(), b, apply)
	} else {
		err = s.LogWriter().Commit([]*store.Batch{b})
	}
	if err != nil {
		return err
	}
	l.Appended(entries, hs)
	l.Truncated(truncated)
	return nil
}

// applyStep writes a step's part of the state, lazily.
func applyStep(s *store.Store, number uint64) error {
	for sub := range subs(number) {
		b := round(4*number+sub, crashKeys)
		if sub == 0 && number%bigEvery == 0 {
			b.PutMutation(&mvcc.Mutation{Group: mvcc.GroupRaw, Cell: bigCell(number), Value: bigValue(number)})
		}
		b.SetLazy()
		if err := s.StateWriter().Commit([]*store.Batch{b}); err != nil {
			return err
		}
	}
	return nil
}

// model is what the acknowledged steps add up to: last is the newest of them. open are those that began but need not have
// survived, in order.
type model struct {
	last    step
	open    []step
	entries map[uint64][]byte // the readable log
}

func newModel() *model { return &model{entries: map[uint64][]byte{}} }

func (m *model) apply(s step) {
	for i := range m.entries {
		if i >= s.first || i <= s.truncate {
			delete(m.entries, i)
		}
	}
	for i := s.first; i <= s.last; i++ {
		m.entries[i] = s.data(i)
	}
	m.last = s
}

// resume takes note of where a writer goes on that was started on what another left behind: what it found must stay.
func (m *model) resume(round uint64) {
	for _, s := range m.open {
		if s.round < round {
			m.apply(s)
		}
	}
	m.open = nil
}

// follow reads the writer's lines until it ends, and calls crash when enough steps are acknowledged. Acknowledgments that
// come later count only if crash says so.
func (m *model) follow(out io.Reader, acks int, crash func() (later bool)) (acknowledged int, failure string) {
	lines, count := bufio.NewScanner(out), true
	for lines.Scan() {
		verb, rest, _ := strings.Cut(lines.Text(), " ")
		switch verb {
		case "begin":
			next, err := parseStep(rest)
			if err != nil {
				return acknowledged, "bad line: " + lines.Text()
			}
			if acknowledged == 0 {
				m.resume(next.round)
			}
			m.open = append(m.open, next)
		case "ack":
			if acknowledged++; count {
				m.apply(m.open[0])
				m.open = m.open[1:]
			}
			if acknowledged == acks {
				count = crash()
			}
		case "failed":
			failure = rest
		}
	}
	return acknowledged, failure
}

// check opens the store and compares: every acknowledged append is there, and what is there is a prefix of what was
// written: appends and state alike, in their order, batch by batch.
func (m *model) check(dir string) error {
	s, err := store.Open(crashOptions(dir))
	if err != nil {
		return err
	}
	defer s.Close()
	number, err := lastStep(s)
	if err != nil {
		return err
	}
	acknowledged := m.last.round
	for len(m.open) > 0 && m.last.round < number {
		m.apply(m.open[0])
		m.open = m.open[1:]
	}
	if number != m.last.round {
		return fmt.Errorf("lost: append %d was acknowledged, %d began later, and the last is %d", acknowledged, len(m.open), number)
	}
	m.open = nil
	if err := m.checkState(s); err != nil {
		return err
	}
	return m.checkLog(s)
}

// checkState: the state before the last append survived with it, of what came after it any whole batches.
func (m *model) checkState(s *store.Store) error {
	snap := s.Snap()
	defer snap.Close()
	state, err := readRound(snap, crashKeys)
	if err != nil {
		return err
	}
	number := m.last.round
	if state > stateAfter(number) || number > 1 && state < stateAfter(number-1) {
		return fmt.Errorf("lost: the last append is %d, and the state is %d/4: not a prefix of what was written", number, state)
	}
	for applied := state / 4; applied > 0 && applied+4*bigEvery > state/4; applied-- {
		if applied%bigEvery != 0 {
			continue
		}
		if v, ok, err := snap.Raw(bigCell(applied)); err != nil || !ok || !bytes.Equal(v, bigValue(applied)) {
			return fmt.Errorf("lost: the long value of round %d: %d bytes, %v, %v", applied, len(v), ok, err)
		}
	}
	return nil
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
func startWriter(t *testing.T, dir string, env ...string) (out io.Reader, kill func(), wait func() string, pid int) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestCrashWriter$", "-test.timeout=10m")
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
	return out, kill, func() string { _ = cmd.Wait(); return stderr.String() }, cmd.Process.Pid
}

func crashRand(t *testing.T) *rand.Rand {
	seed := *crashSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-crash-seed=%d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

// A process killed at any moment has lost nothing that it acknowledged, and tears nothing (invariants 1, 2 and 6), also if
// its memtables were larger than those it is opened with next.
func TestKill(t *testing.T) {
	rounds := *kills
	if testing.Short() {
		rounds = min(rounds, 6)
	}
	rng, dir, m, total := crashRand(t), t.TempDir(), newModel(), 0
	for i := range rounds {
		memTable := fmt.Sprintf("%s=%d", crashMemTableEnv, 2<<(20+rng.IntN(3)))
		out, kill, wait, _ := startWriter(t, dir, memTable)
		acks := rng.IntN(250)
		if acks == 0 { // during Open or soon after
			time.AfterFunc(time.Duration(rng.IntN(60))*time.Millisecond, kill)
		}
		delay := time.Duration(rng.IntN(1500)) * time.Microsecond
		got, failure := m.follow(out, acks, func() bool { time.AfterFunc(delay, kill); return true })
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
