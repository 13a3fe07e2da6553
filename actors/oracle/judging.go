package oracle

import "github.com/percolator-go/percolator/internal/broken"

// This file has this node's clock judged before timestamps follow it (invariant 5). All
// of it is the actor's; the judge answers from elsewhere, by a message.

// judged is the last term whose timestamps may follow this node's clock, and how many
// others voted then: the more there are, the more clocks it can be compared with.
type judged struct {
	term   uint64
	voters int
}

// judgement is what Config.Judge has said, of the electorate that there was when it was asked.
type judgement struct {
	of  *closed
	is  judged
	err error
}

// electorate is the term with the voters as they are now.
func (r *receiver) electorate(term uint64) judged {
	if r.cfg.Voters == nil {
		return judged{term: term}
	}
	return judged{term, r.cfg.Voters()}
}

// unjudged reports whether the clock is to be judged first. The only voter's is not:
// nobody else could lead. But it is as soon as there are others, though the term is the
// same.
func (r *receiver) unjudged(m *confirmed) bool {
	if m.alone && broken.LoneJudged {
		r.judged = judged{max(r.judged.term, m.term), 1 << 30}
	}
	if r.cfg.Judge == nil || m.alone {
		return false
	}
	now := r.electorate(m.term)
	if now.term <= r.judged.term && now.voters <= r.judged.voters {
		return false
	}
	_, _, alone := r.meta.Confirmed() // it may be a raise of the mark that the only voter has asked for
	return !alone
}

// judge holds the batch until it is known whether time may follow this node's clock.
func (r *receiver) judge(term uint64) {
	root, self, of, is := r.root, r.self, r.closed, r.electorate(term)
	r.cfg.Judge(term, func(err error) { root.Send(self, &judgement{of, is, err}) })
}

func (r *receiver) onJudgement(m *judgement) {
	if !r.underWay(m.of) {
		return
	}
	if m.err != nil {
		r.finish(func(call *Call) { call.Fail(m.err) })
		return
	}
	r.judged = m.is
	r.confirm(r.closed, 0) // leadership may have gone meanwhile
}
