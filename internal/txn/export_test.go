package txn

// Waiting returns the number of callers waiting for timestamps that have not been requested yet.
func (c *Client) Waiting() int {
	c.oracle.mu.Lock()
	defer c.oracle.mu.Unlock()
	return len(c.oracle.queue)
}

// ForgetTables empties the cache of tables' ids.
func (c *Client) ForgetTables() { c.meta.names.forget() }
