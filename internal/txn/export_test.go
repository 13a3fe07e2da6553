package txn

// Waiting is how many callers wait for timestamps that have not been asked for yet.
func (c *Client) Waiting() int {
	c.oracle.mu.Lock()
	defer c.oracle.mu.Unlock()
	return len(c.oracle.queue)
}
