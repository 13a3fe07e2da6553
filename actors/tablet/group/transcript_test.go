package group

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
)

// firstTablet is the tablet at the start of a transcript.
const firstTablet = 1

// TestTranscripts runs the transcripts in testdata: each is one group, and what its
// replicas do on the commands in it. `go test -run TestTranscripts ./actors/tablet/group
// -rewrite` writes the answers anew.
//
// A replica is named by its node, and may be given a tablet with tablet=. The commands:
//
//	group voters=(1,2,3) learners=(4)   begins; learners are up to date
//	campaign 1                          asks for votes
//	tick 1                              an interval passes on a replica that is awake
//	tick 1 n                            n of them, and what it sends is not shown
//	                                    busy: its tablet has work
//	time-out 1                          time passes until it campaigns
//	stabilize [1 2 …]                   everything that can happen does, on these nodes
//	ready 1, appended 1, applied 1      one step of it: a Ready, the end of an append, of an apply
//	deliver 1 …, lose 1                 the messages for the node arrive, or are lost
//	propose 1 text                      an entry
//	read 1 7                            a ReadIndex with that id
//	change 1 learner=4 voter=2 demote=1 remove=3
//	transfer 1 to=2                     hands the leadership over
//	split 1 into=2                      proposes that tablet 1 is split
//	crash 1, restart 1, checkpoint 1    a crash leaves what is durable
//	copy 1, old-copy 1                  remembers what is durable, and restarts with that
//	cut 1 …, heal                       nodes that nobody reaches
//	down 3, up 3                        a node is believed dead, by all
//	full 1, room 1                      a node's disk
//	seek 2                              somebody took it for the leader
//	wake 1                              a request comes
//	status                              all replicas
//
// The argument quiet leaves out what happens on the way.
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		w := &world{cut: map[uint64]bool{}, down: map[uint64]bool{}, full: map[uint64]bool{}}
		datadriven.RunTest(t, path, w.run)
	})
}

// run executes one command.
func (w *world) run(t *testing.T, td *datadriven.TestData) string {
	t.Helper()
	w.out.Reset()
	c := arguments(t, td)
	switch td.Cmd {
	case "group":
		w.begin(t, td)
	case "stabilize":
		w.stabilize(c.nodes)
	case "status":
		w.status()
	case "cut":
		set(w.cut, c.nodes, true)
	case "heal":
		clear(w.cut)
	case "down", "up":
		w.believe(c.nodes, td.Cmd == "down")
	case "deliver", "lose":
		for _, m := range w.take(func(m *wire.RaftMessage) bool {
			return slices.Contains(c.nodes, m.ToNode)
		}) {
			if td.Cmd == "deliver" {
				w.deliver(m)
			}
		}
	case "full", "room":
		set(w.full, c.nodes, td.Cmd == "full")
	default:
		for _, node := range c.nodes {
			r := w.at(c.tablet, node)
			if r == nil {
				t.Fatalf("%s: tablet %d has no replica on node %d", td.Pos, c.tablet, node)
			}
			r.run(t, td, c)
		}
	}
	if c.quiet {
		return "ok"
	}
	return w.out.String()
}

func set(nodes map[uint64]bool, which []uint64, on bool) {
	for _, node := range which {
		nodes[node] = on
	}
}

// command is a line's arguments after its verb.
type command struct {
	tablet uint64
	nodes  []uint64
	text   string
	quiet  bool
	busy   bool
}

func arguments(t *testing.T, td *datadriven.TestData) (c command) {
	t.Helper()
	c.tablet = firstTablet
	for _, a := range td.CmdArgs {
		n, err := strconv.ParseUint(a.Key, 10, 64)
		switch {
		case a.Key == "tablet":
			td.ScanArgs(t, "tablet", &c.tablet)
		case a.Key == "quiet":
			c.quiet = true
		case a.Key == "busy":
			c.busy = true
		case len(a.Vals) > 0:
		case err == nil:
			c.nodes = append(c.nodes, n)
		default:
			c.text = a.Key
		}
	}
	if td.Cmd == "tick" || td.Cmd == "read" { // the second number is not a node
		if len(c.nodes) == 2 {
			c.text = fmt.Sprint(c.nodes[1])
		}
		c.nodes = c.nodes[:1]
	}
	return c
}

func (w *world) begin(t *testing.T, td *datadriven.TestData) {
	t.Helper()
	d := &pb.TabletDescriptor{TabletId: firstTablet, Epoch: 1}
	for _, a := range td.CmdArgs {
		for i := range a.Vals {
			var id uint64
			a.Scan(t, i, &id)
			d.Replicas = append(d.Replicas,
				&pb.Replica{ReplicaId: id, NodeId: id, Learner: a.Key == "learners"})
			d.NextReplicaId = max(d.NextReplicaId, id+1)
		}
	}
	for _, r := range d.Replicas {
		w.add(firstTablet, r.ReplicaId, r.NodeId,
			state{index: beginIndex, term: beginTerm, descriptor: d, conf: ConfState(d)})
	}
}

// believe notifies all replicas that nodes are dead, or alive again.
func (w *world) believe(nodes []uint64, down bool) {
	set(w.down, nodes, down)
	for _, node := range nodes {
		for _, r := range w.replicas {
			switch {
			case r.group == nil || r.node == node:
			case down:
				r.group.NodeDown(node)
			default:
				r.group.NodeUp(node)
			}
		}
	}
}

func (w *world) status() {
	for _, r := range w.replicas {
		name, g := r.name(), r.group
		if g == nil {
			w.printf("%s: crashed", name)
			continue
		}
		role := "follows " + fmt.Sprint(g.leader)
		switch {
		case g.MayLead():
			role = "leads"
		case g.Elected():
			role = "elected"
		case g.stale:
			role = "is stale"
		case g.leader == 0:
			role = "knows no leader"
		}
		rests := ""
		if g.Quiesced() {
			rests = ", at rest"
		}
		w.printf("%s: term %d, %s, visible %d of %d%s", name, g.Term(), role, g.Visible(), g.last,
			rests)
	}
}

// run executes one command for one replica.
func (r *replica) run(t *testing.T, td *datadriven.TestData, c command) {
	t.Helper()
	if r.group == nil && td.Cmd != "restart" && td.Cmd != "old-copy" {
		t.Fatalf("%s: node %d has crashed", td.Pos, r.node)
	}
	switch td.Cmd {
	case "campaign":
		r.group.campaign()
	case "tick":
		n, _ := strconv.Atoi(c.text)
		for range max(n, 1) {
			r.tick(c.busy, n == 0)
		}
	case "time-out":
		for range 2 * ElectionTicks {
			if r.group.Tick(); r.group.HasMessages() || r.group.raft.HasReady() {
				return
			}
		}
	case "ready":
		r.ready()
	case "appended":
		r.finishAppend()
	case "applied":
		r.finishApply()
	case "propose":
		if err := r.group.Propose([]byte(c.text)); err != nil {
			r.w.printf("%v", err)
		} else {
			r.group.Wake()
		}
	case "split":
		var into uint64
		td.ScanArgs(t, "into", &into)
		must(r.group.Propose(fmt.Appendf(nil, "split %d", into)))
		r.group.Wake()
	case "read":
		id, err := strconv.ParseUint(c.text, 10, 64)
		must(err)
		r.group.ReadIndex(id)
	case "change":
		r.begin(t, td)
	case "transfer":
		var to uint64
		td.ScanArgs(t, "to", &to)
		if target := r.group.TransferTarget(to); target == 0 {
			r.w.printf("nobody on node %d could lead", to)
		} else {
			r.group.Transfer(target)
		}
	case "crash":
		r.group = nil
	case "restart":
		r.start(false)
	case "checkpoint":
		r.checkpoint = r.state
	case "copy":
		r.copy()
	case "old-copy":
		r.log, r.checkpoint = r.copied.log, r.copied.checkpoint
		r.start(false)
	case "seek":
		r.group.SeekLeader()
	case "wake":
		r.group.Wake()
	default:
		t.Fatalf("%s: unknown command %s", td.Pos, td.Cmd)
	}
}

// tick does what a tablet's actor does after an interval.
func (r *replica) tick(busy, shown bool) {
	if r.group.Quiesced() {
		return
	}
	if r.group.Tick() {
		r.w.printf("%s: the transfer has failed", r.name())
	}
	if r.change == nil && r.group.MayLead() && IsJoint(r.state.descriptor) {
		r.change = &Change{}
	}
	if r.change != nil && !r.asked && r.group.MayLead() {
		r.proposeChange()
	}
	before := r.w.out.String()
	for r.ready() {
	}
	if !shown {
		r.w.out.Reset()
		r.w.out.WriteString(before)
	}
	r.group.MaybeQuiesce(busy || r.change != nil || !r.group.MayLead())
	if r.group.Quiesced() {
		r.w.printf("%s rests", r.name())
		r.ready()
	}
}

// kinds maps the names in transcripts to the steps of a change.
var kinds = map[string]pb.ReplicaChange_Kind{
	"learner": pb.ReplicaChange_KIND_ADD_LEARNER, "voter": pb.ReplicaChange_KIND_PROMOTE,
	"demote": pb.ReplicaChange_KIND_DEMOTE, "remove": pb.ReplicaChange_KIND_REMOVE,
}

// begin begins a change, as a tablet does when nothing else is under way.
func (r *replica) begin(t *testing.T, td *datadriven.TestData) {
	t.Helper()
	var steps []*pb.ReplicaChange
	for _, a := range td.CmdArgs {
		kind, ok := kinds[a.Key]
		for i := range a.Vals {
			if !ok {
				t.Fatalf("%s: unknown step %s", td.Pos, a.Key)
			}
			var node uint64
			a.Scan(t, i, &node)
			steps = append(steps, &pb.ReplicaChange{Kind: kind, NodeId: node})
		}
	}
	_, done, err := NextDescriptor(r.state.descriptor, steps)
	switch {
	case err != nil:
		r.w.printf("%v", strings.TrimPrefix(err.Error(), "tablet: "))
	case done:
		r.w.printf("nothing to do")
	default:
		r.change = NewChange(steps)
		r.proposeChange()
	}
}
