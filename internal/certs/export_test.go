package certs

import "time"

// Forget makes the next handshake reread the files, as a second later.
func Forget(f *Files) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.checked = time.Time{}
}
