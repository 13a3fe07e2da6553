package cli

import (
	"fmt"
	"regexp"
	"strings"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
)

const deleteKind = pb.Kind_KIND_DELETE

// whyJSON is the answer in JSON. What is not there is left out.
type whyJSON struct {
	Verdict      string        `json:"verdict"`
	Sentence     string        `json:"sentence"`
	Next         string        `json:"next,omitempty"`
	Table        string        `json:"table"`
	Row          jsonBytes     `json:"row"`
	Now          uint64        `json:"now"`
	Observer     *observerJSON `json:"observer,omitempty"`
	Change       *changeJSON   `json:"change,omitempty"`
	Run          *changeJSON   `json:"run,omitempty"` // the last acknowledged one; its start_ts is the acknowledgment
	Notification *entryJSON    `json:"notification,omitempty"`
	Locks        []obstacleOut `json:"locks,omitempty"`
}

// changeJSON is a write record.
type changeJSON struct {
	CommitTS uint64 `json:"commit_ts"`
	StartTS  uint64 `json:"start_ts"`
	Kind     string `json:"kind"` // put or delete
}

// entryJSON is the row's notification.
type entryJSON struct {
	TS       uint64 `json:"ts"`
	Attempts uint32 `json:"attempts"`
	ParkedTS uint64 `json:"parked_ts,omitempty"`
	Replay   bool   `json:"replay,omitempty"`
	Error    string `json:"error,omitempty"`
}

// obstacleOut is a lock or intent, with what its primary says.
type obstacleOut struct {
	On       string    `json:"on"` // change, ack or intent
	StartTS  uint64    `json:"start_ts"`
	Primary  *cellJSON `json:"primary"`
	State    string    `json:"state"` // alive, expired, committed or rolled_back
	CommitTS uint64    `json:"commit_ts,omitempty"`
	Until    uint64    `json:"until,omitempty"`
}

// showWhy prints the verdict, then what it rests on.
func (r *run) showWhy(f *facts, v verdict) error {
	v.next = f.fill(r, v.next)
	if r.output == outputJSON {
		return r.object(f.json(v))
	}
	if err := r.print("%s", v.sentence); err != nil {
		return err
	}
	if v.next != "" {
		if err := r.print("  next: %s", v.next); err != nil {
			return err
		}
	}
	if err := r.print(""); err != nil {
		return err
	}
	g := f.evidence()
	return g.write(r.Stdout)
}

// commandTemplate is a command in advice: no foreign text is in it yet.
var commandTemplate = regexp.MustCompile("`[^`]+`")

// fill makes commands out of the templates in advice, with the names that were asked about.
func (f *facts) fill(r *run, next string) string {
	names := map[string]string{"OBSERVER": f.observer, "TABLE": f.table, "ROW": f.row}
	return commandTemplate.ReplaceAllStringFunc(next, func(template string) string {
		var path, flags []string
		var operands []operand
		for _, word := range strings.Fields(strings.Trim(template, "`")) {
			name, known := names[word]
			switch {
			case known:
				operands = append(operands, operand{word, name})
			case len(flags) > 0 || strings.HasPrefix(word, "-"):
				flags = append(flags, word)
			case len(operands) > 0: // a number, which whoever asks is to choose
				operands = append(operands, operand{word, word})
			default:
				path = append(path, word)
			}
		}
		return r.suggest(strings.Join(path, " "), strings.Join(flags, " "), operands...)
	})
}

// evidence is what the verdict rests on, a line for each fact.
func (f *facts) evidence() *grid {
	g := &grid{}
	if f.info == nil {
		g.add("observer", "not in the catalogue")
	} else {
		o := f.state
		kind := "strong"
		if o.Weak {
			kind = "weak"
		}
		g.add("observer", fmt.Sprintf("%s, %s, on column %s of table %s", o.State, kind, printable(string(o.Column)), printable(o.Table)))
		g.add("queues", f.queues())
		if o.Table != f.table {
			return g // the row was not looked at
		}
	}
	switch {
	case f.info.GetWeak() || f.info == nil:
	case f.change == nil:
		g.add("change", "none is committed")
	default:
		g.add("change", fmt.Sprintf("%s committed at %s, begun at %d", kindName(f.change.Kind), f.when(f.changedAt()), f.change.StartTs))
	}
	switch {
	case f.ack != nil:
		g.add("last run", fmt.Sprintf("began at %s, committed at %d", f.when(f.acknowledged()), f.ack.CommitTs))
	case !f.info.GetWeak():
		g.add("last run", "none is acknowledged")
	}
	if f.info != nil {
		g.add("notification", f.notification())
	}
	for _, o := range append(append([]obstacle{}, f.blocks...), f.intents...) {
		g.add("lock", fmt.Sprintf("%s: transaction %d, %s, primary %s", o.on(), o.lock.Lock.StartTS, fateText(&o, f), f.primary(&o)))
	}
	g.add("now", fmt.Sprintf("%d (%s UTC)", f.now, clock(f.now)))
	return g
}

// queues are the figures of the whole observer.
func (f *facts) queues() string {
	o := f.state
	text := fmt.Sprintf("%d waiting, %d parked", o.Waiting, o.Parked)
	if o.OldestTS != 0 {
		text += ", the oldest for " + ago(mvcc.Timestamp(o.OldestTS), f.now)
	}
	if f.stats == nil {
		return text + "; no node that has answered runs it"
	}
	text += fmt.Sprintf("; on all nodes %d running", o.Running)
	if o.Limit > 0 {
		text += fmt.Sprintf(" of at most %d", o.atOnce())
	}
	text += fmt.Sprintf(", %d queued, %d pausing after a failure", o.Queued, o.Backoff)
	if o.Stuck > 0 {
		text += fmt.Sprintf(", %d that do not return", o.Stuck)
	}
	return text + fmt.Sprintf("; %d runs, %d failures", o.Runs, o.Failures)
}

// notification is the entry in words.
func (f *facts) notification() string {
	if f.notify == nil {
		return "none"
	}
	return fmt.Sprintf("%s, of %s", notifyText(f.notify), f.when(mvcc.Timestamp(f.notify.Ts)))
}

// primary is the address of the obstacle's primary.
func (f *facts) primary(o *obstacle) string {
	p := o.lock.Lock.Primary
	name := printable(p.Column)
	if p.Class == mvcc.ClassAck {
		name = "ack_" + name
	}
	return fmt.Sprintf("%s/%s.%s", f.names.byID(uint32(p.Table)), shortened(p.Row, valueWidth/2), name)
}

// on is the cell in one word.
func (o *obstacle) on() string {
	switch {
	case o.lock.Intent:
		return "intent"
	case o.onAck:
		return "ack"
	}
	return "change"
}

// json is the whole answer.
func (f *facts) json(v verdict) whyJSON {
	out := whyJSON{
		Verdict: v.code, Sentence: v.sentence, Next: v.next, Table: f.table, Row: jsonBytes(f.row), Now: uint64(f.now), Observer: f.state,
		Change: newChangeJSON(f.change), Run: newChangeJSON(f.ack),
	}
	if n := f.notify; n != nil {
		out.Notification = &entryJSON{TS: n.Ts, Attempts: n.Attempts, ParkedTS: n.ParkedTs, Replay: n.Replay, Error: n.Error}
	}
	for _, o := range append(append([]obstacle{}, f.blocks...), f.intents...) {
		p := o.lock.Lock.Primary
		lock := obstacleOut{On: o.on(), StartTS: uint64(o.lock.Lock.StartTS), State: o.fate, CommitTS: uint64(o.commitTS), Primary: &cellJSON{
			Table: f.names.byID(uint32(p.Table)), Row: jsonBytes(p.Row), Class: className(uint32(p.Class)), Column: jsonBytes(p.Column),
		}}
		if o.fate == fateAlive || o.fate == fateExpired {
			lock.Until = uint64(o.until)
		}
		out.Locks = append(out.Locks, lock)
	}
	return out
}

// newChangeJSON converts a write record; nil stays nil.
func newChangeJSON(w *pb.Write) *changeJSON {
	if w == nil {
		return nil
	}
	return &changeJSON{w.CommitTs, w.StartTs, kindName(w.Kind)}
}
