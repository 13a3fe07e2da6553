package oracle

// Judgement of this node's clock before timestamps follow it, on the actor's
// goroutine; Config.Judge responds by a message. The current batch waits while a judgement is in
// flight.

// judged is the last term in which this node's clock was accepted, and how many other
// voters there were: the more there are, the more clocks it can be compared with.
type judged struct {
	term   uint64
	voters int
}

// judgement is the answer of Config.Judge, for the electorate as of the request.
type judgement struct {
	of  *closed
	is  judged
	err error
}

// covers reports whether the clock need not be judged again for a later electorate.
func (j judged) covers(now judged) bool { return now.term <= j.term && now.voters <= j.voters }

// electorate returns the term with the present number of other voters.
func (c *Config) electorate(term uint64) judged {
	if c.Voters == nil {
		return judged{term: term}
	}
	return judged{term, c.Voters()}
}

// mustJudge reports whether the clock must be judged before the batch is served. The clock of the
// only voter need not be, since no other node could lead; once there are other voters it must be,
// even in the same term.
func (r *receiver) mustJudge(m *confirmed) bool {
	if r.cfg.Judge == nil || m.alone {
		return false
	}
	r.memory.Lock()
	judged := r.memory.judged.covers(r.cfg.electorate(m.term))
	r.memory.Unlock()
	if judged {
		return false
	}
	// The confirmation may be the only voter's answer to Mark, which never sets alone: ask
	// Confirmed.
	_, _, alone, ok := r.meta.Confirmed()
	return !ok || !alone
}

// judge holds the present batch until the clock has been judged.
func (r *receiver) judge(term uint64) {
	root, self, of, is := r.root, r.self, r.closed, r.cfg.electorate(term)
	r.cfg.Judge(term, func(err error) { root.Send(self, &judgement{of, is, err}) })
}

// onJudgement serves the batch that waited for the judgement, or fails its calls.
func (r *receiver) onJudgement(m *judgement) {
	if !r.underWay(m.of) {
		return
	}
	if m.err != nil {
		r.finish(func(call *Call) { call.Fail(m.err) })
		return
	}
	r.memory.Lock()
	r.memory.judged = m.is
	r.memory.Unlock()
	r.confirm(r.closed, 0) // leadership may have been lost in the meantime
}
