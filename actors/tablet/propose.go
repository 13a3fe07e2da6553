package tablet

import (
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/percolator-go/percolator/actors/tablet/group"
	"github.com/percolator-go/percolator/actors/tablet/memory"
	"github.com/percolator-go/percolator/actors/tablet/writers"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/tracing"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// Proposals: how they are built, passed to Raft, and lost with the leadership. A proposal is
// created, filled and proposed within one turn of the tablet; one that nobody awaits may be proposed
// with the next one (mayDelay). From that turn on it is in pipeline.inflight until its effects are
// visible (apply.go) or stepDown loses it. Its evaluation may have read everything in flight before
// it, so its answers wait until its entry is committed, or visible if it changes more than rows.

// proposer is the part of a tablet that checks and evaluates mutations and proposes their
// effects, without the mailbox, reads and the collection of history. Only the tablet's turns
// touch its fields, except for those that never change after newTablet.
type proposer struct {
	cfg   Config
	host  Host
	store *store.Store
	logs  *writers.Pair
	fail  func(error) // the tablet's

	id    uint64
	group *group.Group // the replica's Raft
	// Replicated state as of the last entry sent to the state actor.
	state
	memory  *memory.Memory // the leader's in-memory state of its rows
	leading bool           // elected, and an entry of its own term is visible
	failed  error          // why the replica has stopped serving; nil while it runs

	barrier      barrier
	pipeline     pipeline
	reservations reservations
	waiting      waitingOps // operations that wait for reservations or for effects in flight
	counters     counters
}

// proposal is one Raft entry under way: the effects of one batch of evaluated operations,
// and the callers that wait for it.
type proposal struct {
	number  uint64
	command *wire.Command
	muts    []mvcc.Mutation // command.Effects as the overlay's mutations
	notes   []memory.Change // their changes of the notify index
	replies []reply
	holds   []*reservedCommit // reservations to release when it is visible or lost
	bytes   int
	entries int // entries in the store: a long value takes several
	began   time.Time
	known   mvcc.Timestamp // the greatest timestamp that the leader knew before the evaluation

	collects   bool // a step of collection
	background bool // it only finishes transactions that are decided
	answered   bool // the callers are answered: nothing can undo the proposal
}

// reply is an answer that must wait before it is sent.
type reply struct {
	call     *Call
	response *pb.TabletResponse
}

// maxProposalBytes limits the effects of several operations in one entry: an operation that would
// exceed it opens another entry. A larger operation has an entry of its own.
const maxProposalBytes = 4 << 20

// Reserve for what an entry's batch in the store contains besides the effects, such as the Applied
// record.
const (
	entryReserve = 64 << 10 // bytes
	spareEntries = 16       // entries of the store
)

// Limits of one entry's effects in the store. A larger entry could never be applied, and the
// replica would fail on it after every restart.
const (
	maxEffectBytes = store.MaxBatchBytes - entryReserve
	maxEffects     = store.MaxBatchLen - spareEntries
)

// roomFor allocates space for the effects of that many small operations: a record each, and
// the record that it supersedes.
func (p *proposal) roomFor(operations int) {
	p.muts, p.command.Effects = make([]mvcc.Mutation, 0, 2*operations),
		make([]*wire.Effect, 0, 2*operations)
	p.replies, p.holds = make([]reply, 0, operations), make([]*reservedCommit, 0, operations)
}

// newProposal returns an empty proposal with the next number, the current epoch and, in known, the
// greatest timestamp that the leader knows.
func (o *proposer) newProposal() *proposal {
	o.pipeline.number++
	n := o.pipeline.number
	return &proposal{
		number: n, command: &wire.Command{Proposal: n, Epoch: o.descriptor.Epoch}, known: o.memory.Known(),
	}
}

// effects are the encoded effects of one operation, and their cost in the store.
type effects struct {
	muts           []mvcc.Mutation
	wires          []*wire.Effect
	bytes, entries int
}

// encode encodes the mutations, plain or with origins. The effects share one allocation.
func encode(muts []mvcc.Mutation, plain bool) effects {
	e := effects{muts: muts, wires: make([]*wire.Effect, len(muts))}
	block, encoder := make([]wire.Effect, len(muts)), store.NewEncoder(muts, plain)
	for i := range muts {
		key, value := encoder.Encode(&muts[i])
		e.wires[i] = &block[i]
		block[i].Key, block[i].Value, block[i].Delete = key, value, muts[i].Delete
		size, entries := store.Cost(key, value)
		e.bytes += size + effectOverhead
		e.entries += entries
	}
	return e
}

// effectOverhead is the number of bytes that an entry's encoding adds to an effect, beyond the
// store's.
const effectOverhead = 12

// addEffects adds the effects of one operation to the batch's entry, or to a new entry if they
// do not fit. Operations evaluated later see them. It returns a refusal if no entry can hold
// them, if the earlier entry could not be proposed, or if the store could not be read.
func (e *evaluation) addEffects(muts []mvcc.Mutation) *pb.TabletResponse {
	if len(muts) == 0 {
		return nil
	}
	f := encode(muts, !e.cfg.Origins())
	if f.bytes > maxEffectBytes || f.entries > maxEffects {
		return wire.Failure(pb.Error_CODE_TOO_LARGE,
			"the operation's effects are %d bytes in %d entries; at most %d in %d: use smaller transactions",
			f.bytes, f.entries, maxEffectBytes, maxEffects)
	}
	p := e.proposal
	if p.bytes > 0 && (p.bytes+f.bytes > min(maxProposalBytes, maxEffectBytes) ||
		p.entries+f.entries > maxEffects) {
		e.proposal = e.newProposal()
		if !e.propose(p) { // an operation evaluated on top of p must not outlive it
			return wire.Failure(pb.Error_CODE_NOT_PROPOSED,
				"tablet %d could not propose an earlier operation; try again", e.id)
		}
		p = e.proposal
	}
	var err error
	if p.notes, err = e.memory.Evaluated(e.view, p.number, muts, p.notes); err != nil {
		e.fail(err)
		return wire.Failure(pb.Error_CODE_UNAVAILABLE, "tablet %d could not read its store: %v", e.id,
			err)
	}
	p.muts = join(p.muts, muts)
	p.command.Effects = join(p.command.Effects, f.wires)
	p.bytes += f.bytes
	p.entries += f.entries
	return nil
}

// join appends more to list. It takes over more, without a copy, if it is the first and list has no
// room for it.
func join[T any](list, more []T) []T {
	if len(list) == 0 && cap(list) < len(more) {
		return more
	}
	return append(list, more...)
}

// answer keeps the answer until everything that its evaluation could have read is committed, and
// the proposal's own entry is visible if it changes more than rows.
func (p *proposal) answer(call *Call, r *pb.TabletResponse) {
	p.replies = append(p.replies, reply{call, r})
}

// trace adds the operation's trace, if it has one, to the entry's effects.
func (p *proposal) trace(traces *tracing.Book, req *pb.TabletRequest, muts []mvcc.Mutation) {
	p.command.Traces = append(p.command.Traces, traces.Traces(req, muts)...)
}

// spanOf returns the name of the span of an operation in its tablet.
func spanOf(op *wire.Operation) string {
	if op.Reads() {
		return "percolator.serve"
	}
	return "percolator.apply"
}

// mark adds an event to the spans of the traced calls, and returns one of them, or nil.
func mark(calls []*Call, event string) (traced *tracing.Span) {
	for _, call := range calls {
		if call.Span != nil {
			call.Span.Event(event)
			traced = call.Span
		}
	}
	return traced
}

// mark adds an event to the spans of the traced calls that the proposal will answer.
func (p *proposal) mark(event string) {
	for i := range p.replies {
		p.replies[i].call.Span.Event(event)
	}
}

func (p *proposal) empty() bool {
	return len(p.command.Effects) == 0 && effectsOnly(p.command)
}

// propose passes the proposal to Raft, in the turn of its evaluation, and reports whether
// Raft accepted it; if not, the proposal is lost. An empty one needs no entry: its answers
// and reservations wait for the proposals in flight, whose effects they may have read. One that may
// be delayed precedes the next one, in the same message to Raft.
func (o *proposer) propose(p *proposal) bool {
	if p.empty() {
		if len(p.replies)+len(p.holds) > 0 && !o.proposeDelayed() {
			o.lose(p, o.notProposed(errNotProposed))
			return false
		}
		o.attach(p)
		return true
	}
	if err := noRoom(o.logs, o.store); err != nil {
		o.lose(p, diskFull(o.cfg.NodeID, err, o.group.Single()))
		return false
	}
	if o.mayDelay(p) {
		if o.pipeline.delayed != nil { // its entry would be lost, and its command paired with another entry
			panic("tablet: a proposal is delayed already")
		}
		o.pipeline.delayed = p
		o.pipeline.inflight = append(o.pipeline.inflight, p)
		o.pipeline.timer = time.AfterFunc(o.cfg.MaxDelay, func() { o.waiting.self.send(&endDelay{}) })
		return true
	}
	delayed := o.pipeline.takeDelayed()
	proposals := []*proposal{p}
	if delayed != nil {
		proposals = []*proposal{delayed, p}
	}
	if err := o.submit(proposals); err != nil {
		o.loseDelayed(delayed, err)
		o.lose(p, o.notProposed(err))
		return false
	}
	o.pipeline.inflight = append(o.pipeline.inflight, p)
	return true
}

// submit passes the proposals to Raft, all or none.
func (o *proposer) submit(proposals []*proposal) error {
	if o.failed != nil {
		return o.failed
	}
	entries := make([][]byte, len(proposals))
	for i, p := range proposals {
		var err error
		if entries[i], err = proto.Marshal(p.command); err != nil {
			return err
		}
	}
	err := errNotProposed
	next := proposals[len(proposals)-1].command.Replicas
	switch {
	case next == nil:
		err = o.group.Propose(entries...)
	// A change of the replicas is alone in the pipeline, and is proposed to raft with the command as
	// its context.
	case len(entries) == 1:
		err = o.group.ProposeChange(next, entries[0])
	}
	if err != nil {
		return err
	}
	o.group.Wake()
	for _, p := range proposals {
		p.began = time.Now()
		for i := range p.replies {
			span := p.replies[i].call.Span
			span.Event("proposed")
			span.Number("percolator.batch", uint64(len(p.replies)))
		}
		o.cfg.Metrics.Entries.Observe(len(p.replies))
		o.counters.proposals++
	}
	return nil
}

func (o *proposer) notProposed(err error) *pb.TabletResponse {
	return wire.Failure(pb.Error_CODE_NOT_PROPOSED, "tablet %d could not propose: %v; try again", o.id, err)
}

// endDelay makes the tablet propose its delayed proposal.
type endDelay struct{}

// mayDelay reports whether the proposal may wait for the next one, so that each replica syncs both at
// once: synced by itself, it would delay the locks of the client's next transaction. No caller waits for
// it, no observer and no subscriber, and every earlier entry is committed. A mutation or a status check
// that waits for it later ends the delay; a read that meets its lock does not.
func (o *proposer) mayDelay(p *proposal) bool {
	return p.background && effectsOnly(p.command) && len(p.notes) == 0 && o.pipeline.next() == nil && !o.memory.Recording()
}

// proposeDelayed passes the delayed proposal to Raft, if there is one. It returns false if Raft refused
// it: what was evaluated over it must not outlive it.
func (o *proposer) proposeDelayed() bool {
	delayed := o.pipeline.takeDelayed()
	if delayed == nil {
		return true
	}
	err := o.submit([]*proposal{delayed})
	if err != nil {
		o.loseDelayed(delayed, err)
	}
	return err == nil
}

// loseDelayed loses the delayed proposal, if it is not nil: the last one in flight.
func (o *proposer) loseDelayed(delayed *proposal, err error) {
	if delayed != nil {
		o.pipeline.inflight = o.pipeline.inflight[:len(o.pipeline.inflight)-1]
		o.lose(delayed, o.notProposed(err))
	}
}

// attach completes an empty proposal together with those in flight: its answers are
// sent with the last ones still due, its reservations are released when the last one is visible.
func (o *proposer) attach(p *proposal) {
	if n := len(o.pipeline.inflight); n > 0 {
		last := o.pipeline.inflight[n-1]
		last.holds = append(last.holds, p.holds...)
	} else {
		o.reservations.release(p.holds...)
	}
	if q := o.pipeline.unanswered(); q != nil {
		q.replies = append(q.replies, p.replies...)
		return
	}
	p.deliver()
}

// deliver sends the answers.
func (p *proposal) deliver() {
	for _, r := range p.replies {
		r.call.Reply(r.response)
	}
	p.replies, p.answered = nil, true
}

// lose abandons the proposal: it removes its effects from the overlay, releases its
// reservations, and sends the answer to all its callers.
func (o *proposer) lose(p *proposal, answer *pb.TabletResponse) {
	o.memory.Lost(p.number, p.muts)
	o.reservations.release(p.holds...)
	for _, r := range p.replies {
		r.call.Reply(answer)
	}
}

// effectsOnly reports whether the command changes only rows, so that it needs no entry if it
// has no effects.
func effectsOnly(c *wire.Command) bool {
	return c.Split == nil && c.Catalogue == nil && c.RaiseMark == 0 && c.Bound == 0 &&
		c.Safepoint == 0 &&
		c.Merge == nil && c.Replicas == nil && c.Checksum == 0 && c.Sized == nil
}
