package peer

// Held is what answers to other nodes' reads take, in bytes.
func (p *Peers) Held() (out int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.room.mu.Lock()
	defer p.room.mu.Unlock()
	for _, box := range p.boxes {
		for _, r := range box.reads {
			out += r.held
		}
	}
	return out
}
